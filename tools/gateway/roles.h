/* SPDX-License-Identifier: BSD-3-Clause */
/* What a user of the gateway may call. Pure. */
#ifndef TOOLS_GATEWAY_ROLES_H
#define TOOLS_GATEWAY_ROLES_H

#include <stdbool.h>

/* Each role may do all that the ones before it may. */
enum gateway_role { GATEWAY_READ, GATEWAY_OPERATE, GATEWAY_ADMIN };

/* The least role that may call the method. A method that the table does not know needs GATEWAY_ADMIN. */
enum gateway_role gateway_role_needed(const char *method);
/* The name of a role, as in the file of users. */
const char *gateway_role_name(enum gateway_role role);
/* Finds the role with this name. False: there is none, and *role is unchanged. */
bool gateway_role_find(const char *name, enum gateway_role *role);

#endif
