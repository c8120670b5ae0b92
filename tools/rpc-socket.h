/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the RPC socket of a process, for the option -p of tools. */
#ifndef TOOLS_RPC_SOCKET_H
#define TOOLS_RPC_SOCKET_H

#include <stddef.h>
#include <sys/types.h>

enum { RPC_SOCKET_PATH_MAX = 256 };

/* Finds the path of the Unix socket on which the process answers JSON-RPC. pid: a decimal number in text. 0, and path
 * is set; or a negative errno, and why (of why_size bytes) has the reason in words. */
int rpc_socket_of_process(const char *pid, char path[RPC_SOCKET_PATH_MAX], char *why, size_t why_size);

#endif
