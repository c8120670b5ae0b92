/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of the console's page (appliance/console/), in the program. */
#ifndef APPLIANCE_CONSOLE_FILES_H
#define APPLIANCE_CONSOLE_FILES_H

#include "appliance/metrics_http.h"

struct console_file {
	const unsigned char *bytes;
	size_t size;
};
/* NULL bytes: the route is none of a file. */
extern const struct console_file console_files[HTTP_ROUTES];

#endif
