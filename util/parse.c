/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int digit_value(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Digits of the given base from s; *end is the first character that is none. */
static int parse_digits(const char *s, unsigned base, uint64_t *value, const char **end)
{
	uint64_t v = 0;
	const char *p = s;

	for (; digit_value(*p) < (int)base; p++) {
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, (uint64_t)digit_value(*p), &v)) {
			return -ERANGE;
		}
	}
	if (p == s) {
		return -EINVAL;
	}
	*value = v;
	*end = p;
	return 0;
}

static int parse_number_prefix(const char *text, uint64_t *value, const char **end)
{
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
		return parse_digits(text + 2, 16, value, end);
	}
	return parse_digits(text, 10, value, end);
}

int parse_uint64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *end;
	uint64_t v;
	int rc = parse_number_prefix(text, &v, &end);

	if (rc != 0) {
		return rc;
	}
	if (*end != '\0') {
		return -EINVAL;
	}
	if (v < min || v > max) {
		return -ERANGE;
	}
	*value = v;
	return 0;
}

static int size_shift(const char *suffix)
{
	static const char units[] = "kmgt";

	if (*suffix == '\0') {
		return 0;
	}
	const char *unit = strchr(units, tolower((unsigned char)*suffix));
	return unit != NULL && suffix[1] == '\0' ? (int)(unit - units + 1) * 10 : -1;
}

int parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *bytes)
{
	const char *end;
	uint64_t v;
	int rc = parse_number_prefix(text, &v, &end);

	if (rc != 0) {
		return rc;
	}
	int shift = size_shift(end);
	if (shift < 0) {
		return -EINVAL;
	}
	if (v > UINT64_MAX >> shift || v << shift < min || v << shift > max) {
		return -ERANGE;
	}
	*bytes = v << shift;
	return 0;
}

int parse_uuid(const char *text, char *canonical)
{
	if (strnlen(text, PARSE_UUID_MAX) != PARSE_UUID_MAX - 1) {
		return -EINVAL;
	}
	for (unsigned i = 0; i < PARSE_UUID_MAX - 1; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i])) {
			return -EINVAL;
		}
		canonical[i] = (char)tolower((unsigned char)text[i]);
	}
	canonical[PARSE_UUID_MAX - 1] = '\0';
	return 0;
}

bool parse_is_port(const char *text)
{
	uint64_t value;

	return text[0] >= '1' && text[0] <= '9' && parse_uint64(text, 1, UINT16_MAX, &value) == 0;
}

bool parse_is_ip_address(const char *text, bool v6)
{
	char address[INET6_ADDRSTRLEN];
	_Alignas(struct in6_addr) char bytes[sizeof(struct in6_addr)];
	const char *zone = v6 ? strchr(text, '%') : NULL;
	size_t len = zone != NULL ? (size_t)(zone - text) : strlen(text);

	if (len >= sizeof(address) || (zone != NULL && zone[1] == '\0')) {
		return false;
	}
	memcpy(address, text, len);
	address[len] = '\0';
	if (v6) {
		return inet_pton(AF_INET6, address, bytes) == 1;
	}
	/* inet_aton() knows the short spellings, but also ends at a blank. */
	return strspn(address, "0123456789abcdefABCDEFxX.") == len && inet_aton(address, (struct in_addr *)bytes) == 1;
}

/* The length that the lead byte announces and the range its second byte must lie in (RFC 3629 section 4). */
static size_t utf8_lead(unsigned char c, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xbf;
	if (c < 0x80) {
		return 1;
	}
	if (c >= 0xc2 && c <= 0xdf) {
		return 2;
	}
	if (c >= 0xe0 && c <= 0xef) {
		*low = c == 0xe0 ? 0xa0 : 0x80;
		*high = c == 0xed ? 0x9f : 0xbf;
		return 3;
	}
	if (c >= 0xf0 && c <= 0xf4) {
		*low = c == 0xf0 ? 0x90 : 0x80;
		*high = c == 0xf4 ? 0x8f : 0xbf;
		return 4;
	}
	return 0;
}

size_t utf8_sequence(const char *s, size_t len)
{
	const unsigned char *u = (const unsigned char *)s;
	unsigned char low, high;

	if (len == 0) {
		return 0;
	}
	size_t n = utf8_lead(u[0], &low, &high);
	if (n == 0 || n > len) {
		return 0;
	}
	for (size_t i = 1; i < n; i++) {
		if (u[i] < low || u[i] > high) {
			return 0;
		}
		low = 0x80;
		high = 0xbf;
	}
	return n;
}

/* Whether a character turns or breaks the line in which it is shown: U+2028, U+2029, U+202A to U+202E, U+2066 to
 * U+2069.
 */
static bool utf8_is_layout(const unsigned char *u)
{
	return u[0] == 0xe2 &&
	       ((u[1] == 0x80 && u[2] >= 0xa8 && u[2] <= 0xae) || (u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9));
}

size_t utf8_printable(const char *s, size_t len)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t n = utf8_sequence(s, len);
	bool control = n == 1 ? u[0] < 0x20 || u[0] == 0x7f : n == 2 && u[0] == 0xc2 && u[1] < 0xa0;

	return control || (n == 3 && utf8_is_layout(u)) ? 0 : n;
}

/* Whether a sequence goes on here. */
static bool utf8_goes_on(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

void utf8_quote(const char *s, char *out, size_t size)
{
	static const char gap[] = "...";
	size_t len = strlen(s), room = size - sizeof("\"\""), head = len, tail = len;

	if (len > room) {
		head = (room - strlen(gap)) / 2;
		tail = len - (room - strlen(gap) - head);
		while (head > 0 && utf8_goes_on(s[head])) {
			head--;
		}
		while (utf8_goes_on(s[tail])) {
			tail++;
		}
	}
	snprintf(out, size, "\"%.*s%s%s\"", (int)head, s, head < len ? gap : "", s + tail);
	for (char *at = out + 1; at[1] != 0; at++) {
		*at = *at == '"' ? '\'' : *at;
	}
}

bool utf8_valid(const char *s, size_t len)
{
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_sequence(s + i, len - i);
		if (n == 0) {
			return false;
		}
	}
	return true;
}

size_t utf8_sanitize(const char *s, char *out, size_t size)
{
	static const char replacement[] = "\xef\xbf\xbd";
	size_t len = strlen(s), used = 0;

	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence(s + i, len - i);
		const char *from = n != 0 ? s + i : replacement;
		size_t copy = n != 0 ? n : sizeof(replacement) - 1;
		if (used + copy >= size) {
			break;
		}
		memcpy(out + used, from, copy);
		used += copy;
		i += n != 0 ? n : 1;
	}
	out[used] = '\0';
	return used;
}
