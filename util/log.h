/* SPDX-License-Identifier: BSD-3-Clause */
/* Logging: five levels, to stderr and/or syslog; INFO and DEBUG are printed only for flags that are on.
 *
 * A log line is a system call: never log per I/O. Events that a peer can cause at will use log_limited(). */
#ifndef UTIL_LOG_H
#define UTIL_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum log_level {
	LOG_LEVEL_DISABLED = -1,
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_NOTICE,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

/* One component's switch for its INFO and DEBUG lines; defined by LOG_FLAG(name), listed by log_get_flags. */
struct log_flag {
	const char *name;
	bool enabled;
	SLIST_ENTRY(log_flag) link;
};

void log_flag_register(struct log_flag *flag);

/* Defines `log_flag_NAME` in this file and registers it before main(). One per room: LOG_FLAG(bdev). */
#define LOG_FLAG(name_)                                                                                                \
	static struct log_flag log_flag_##name_ = {.name = #name_};                                                    \
	__attribute__((constructor)) static void log_flag_register_##name_(void)                                       \
	{                                                                                                              \
		log_flag_register(&log_flag_##name_);                                                                  \
	}

/* Writes one line (no newline in fmt). Any thread. */
void log_write(enum log_level level, const char *file, int line, const char *func, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Who is told of each line that is written, beside where it goes; NULL: nobody. file: without folders; text: without
 * what is before the message, and only until it returns. Called by the thread that writes the line. Control thread. */
typedef void log_tap(enum log_level level, const char *file, int line, const char *text);
void log_set_tap(log_tap *tap);

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __FILE__, __LINE__, __func__, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __FILE__, __LINE__, __func__, __VA_ARGS__)
#define log_notice(...)  log_write(LOG_LEVEL_NOTICE, __FILE__, __LINE__, __func__, __VA_ARGS__)
/* flag: the bare name given to LOG_FLAG in this file. */
#define log_info(flag, ...)                                                                                            \
	do {                                                                                                           \
		if (log_flag_##flag.enabled) {                                                                         \
			log_write(LOG_LEVEL_INFO, __FILE__, __LINE__, __func__, __VA_ARGS__);                          \
		}                                                                                                      \
	} while (0)
#define log_debug(flag, ...)                                                                                           \
	do {                                                                                                           \
		if (log_flag_##flag.enabled) {                                                                         \
			log_write(LOG_LEVEL_DEBUG, __FILE__, __LINE__, __func__, __VA_ARGS__);                         \
		}                                                                                                      \
	} while (0)

/* State of one rate-limited call site. */
struct log_limit {
	uint64_t window_start_ns;
	uint32_t count, suppressed;
};
bool log_limit_pass(struct log_limit *l, uint32_t *suppressed);

/* At most ten lines a second from this place; the next line that passes says how many were left out. */
#define log_limited(level, fmt, ...)                                                                                   \
	do {                                                                                                           \
		static struct log_limit limit_;                                                                        \
		uint32_t left_out_;                                                                                    \
		if (log_limit_pass(&limit_, &left_out_)) {                                                             \
			log_write(level, __FILE__, __LINE__, __func__, fmt "%s", ##__VA_ARGS__,                        \
				  left_out_ ? " (some earlier lines left out)" : "");                                  \
		}                                                                                                      \
	} while (0)

/* What is printed (to stderr) and what goes to syslog; the defaults are NOTICE and DISABLED. Control thread. */
void log_set_print_level(enum log_level level);
enum log_level log_get_print_level(void);
void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_enable_timestamps(bool on);
/* 0, or -ENOENT if no such flag; "all" means every flag. */
int log_set_flag(const char *name, bool on);
const struct log_flag *log_first_flag(void);
const char *log_level_name(enum log_level level);
/* 0 and *level, or -EINVAL; names as in log_level_name(), any case. */
int log_level_parse(const char *name, enum log_level *level);

#endif
