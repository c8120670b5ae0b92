/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of libavahi-client that mdns_avahi.c uses. The library, with libdbus, is loaded when the first session
 * begins: few targets are published. */
#ifndef NVMF_MDNS_LIBRARY_H
#define NVMF_MDNS_LIBRARY_H

#include <avahi-client/client.h>
#include <avahi-client/publish.h>
#include <avahi-common/alternative.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/simple-watch.h>
#include <avahi-common/strlst.h>

#define MDNS_LIBRARY_FUNCTIONS(X)                                                                                      \
	X(avahi_client_new)                                                                                            \
	X(avahi_client_free)                                                                                           \
	X(avahi_client_errno)                                                                                          \
	X(avahi_entry_group_new)                                                                                       \
	X(avahi_entry_group_free)                                                                                      \
	X(avahi_entry_group_add_service_strlst)                                                                        \
	X(avahi_entry_group_commit)                                                                                    \
	X(avahi_simple_poll_new)                                                                                       \
	X(avahi_simple_poll_free)                                                                                      \
	X(avahi_simple_poll_get)                                                                                       \
	X(avahi_simple_poll_iterate)                                                                                   \
	X(avahi_alternative_service_name)                                                                              \
	X(avahi_string_list_new)                                                                                       \
	X(avahi_string_list_free)                                                                                      \
	X(avahi_strerror)                                                                                              \
	X(avahi_free)

struct nvmf_mdns_library {
#define MDNS_LIBRARY_MEMBER(function_) __typeof__(&(function_)) function_;
	MDNS_LIBRARY_FUNCTIONS(MDNS_LIBRARY_MEMBER)
#undef MDNS_LIBRARY_MEMBER
};

/* Used by one thread at a time; a test may fill it in before. */
extern struct nvmf_mdns_library nvmf_mdns_avahi;

#endif
