# SPDX-License-Identifier: BSD-3-Clause
"""Several gateways on the same storage: who owns what is decided in etcd."""
