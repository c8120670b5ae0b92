/* SPDX-License-Identifier: BSD-3-Clause */
/* A saved configuration is one for SPDK targets too, which refuse methods and parameters that they do not know, and
 * pass over unknown keys beside "subsystems". So what is varve's own, marked as such in the tables of parameters,
 * stands apart:
 *
 *     {"subsystems": [{"subsystem": "bdev", "config": [
 *          {"method": "bdev_delay_create", "params": {"name": "D0", "base_bdev_name": "N0", ...}}]}],
 *      "varve": [{"subsystem": "bdev", "config": [
 *          {"method": "bdev_delay_create", "params": {"name": "D0", "p999_read_latency": 90}},
 *          {"method": "bdev_set_timeout", "params": {"name": "D0", "timeout_us": 1000000}}]}]}
 *
 * An entry of "varve" adds its parameters to the first entry of that method in the same subsystem with which it agrees
 * in all parameters that both have; if there is none, it is an entry of its own behind the others. One that creates
 * something (..._create) has a "place", the number of entries of "subsystems" before it, and stands there; and in any
 * case before the first that mentions its "name". Pure. */
#ifndef RPC_OWN_H
#define RPC_OWN_H

#include <jansson.h>

#define RPC_OWN_KEY "varve"

/* Takes what is varve's own out of the entries of "subsystems", into "varve" if there is any. methods: as
 * rpc_describe_methods answers. */
void rpc_own_split(json_t *config, const json_t *methods);
/* The reverse. Removes "varve". Entries that are malformed are left for the caller to complain of. NULL; or, if "varve"
 * has no such form, what is wrong with it. */
const char *rpc_own_merge(json_t *config);

#endif
