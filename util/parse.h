/* SPDX-License-Identifier: BSD-3-Clause */
/* Text from outside (command line, JSON, files) into checked values. Pure functions, any thread. */
#ifndef UTIL_PARSE_H
#define UTIL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole decimal, or 0x hexadecimal, number with nothing before or after it. 0, -EINVAL (not a number) or
 * -ERANGE (does not fit into 64 bits, or lies outside min..max). *value is set on success only. */
int parse_uint64(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* A size in bytes: "4096", "64k", "512M", "2G", in powers of 1024. Errors as parse_uint64(). */
int parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *bytes);

#define PARSE_UUID_MAX 37
/* A UUID in the text form of RFC 9562. canonical (PARSE_UUID_MAX bytes) receives it in lower case. 0 or -EINVAL. */
int parse_uuid(const char *text, char *canonical);

/* Whether a text is a TCP or RDMA port: 1 to 65535, digits only, without leading zeros, so that equal ports are equal
 * texts. */
bool parse_is_port(const char *text);
/* Whether a text is a numeric IPv4 address, also in a short spelling (127.1), or (v6) an IPv6 address with or without
 * "%INTERFACE" behind it. */
bool parse_is_ip_address(const char *text, bool v6);

/* Length in bytes (1 to 4) of the UTF-8 sequence at s (RFC 3629: no surrogates, no overlong forms); 0 if the first len
 * bytes hold none. */
size_t utf8_sequence(const char *s, size_t len);
/* As utf8_sequence(), but 0 also for control characters: C0, DEL, and C1 (U+0080 to U+009F), which terminals obey too;
 * and for those that break lines or turn their direction (U+2028 to U+202E, U+2066 to U+2069). */
size_t utf8_printable(const char *s, size_t len);
/* Copies s, which is UTF-8, into out (size bytes, at least 8, always terminated) in double quotes, so that nobody takes
 * it for a part of the sentence around it: '"' in it becomes '\''. Of a text that is too long the beginning and the
 * end are copied, with "..." between; it is cut between sequences. */
void utf8_quote(const char *s, char *out, size_t size);
/* Whether the len bytes at s are UTF-8 throughout. */
bool utf8_valid(const char *s, size_t len);
/* Copies s into out (size bytes, always terminated), with U+FFFD for each byte that belongs to no UTF-8 sequence; a
 * text that is too long is cut between sequences. Returns the length of the copy in bytes. Needed because names from
 * hosts and files are not always text, and JSON must be. */
size_t utf8_sanitize(const char *s, char *out, size_t size);

#endif
