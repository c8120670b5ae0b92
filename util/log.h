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

/* The switch for one room's INFO and DEBUG lines; defined by LOG_FLAG(name), listed by the RPC log_get_flags. */
struct log_flag {
	const char *name;
	bool enabled;
	SLIST_ENTRY(log_flag) link;
};

/* Makes a flag known to log_set_flag(). By LOG_FLAG(), before main(). */
void log_flag_register(struct log_flag *flag);

/* Defines `log_flag_NAME` in this file and registers it before main(). One per room: LOG_FLAG(bdev). */
#define LOG_FLAG(name_)                                                                                                \
	static struct log_flag log_flag_##name_ = {.name = #name_};                                                    \
	__attribute__((constructor)) static void log_flag_register_##name_(void)                                       \
	{                                                                                                              \
		log_flag_register(&log_flag_##name_);                                                                  \
	}

/* Writes one line (no newline in fmt), if its level is printed. Any thread; one or two system calls. Called by the
 * macros below. */
void log_write(enum log_level level, const char *file, int line, const char *func, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* A function that is given each line that is written, besides stderr and syslog. file: without its folders; text: the
 * message alone, valid until the function returns. Called on the thread that writes the line. */
typedef void log_tap(enum log_level level, const char *file, int line, const char *text);
/* Sets the tap; NULL: none. Control thread. */
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
/* Whether this call site may write a line now; *suppressed is then how many it was refused since the last one. Any
 * thread. Called by log_limited(). */
bool log_limit_pass(struct log_limit *l, uint32_t *suppressed);

/* Writes at most ten lines a second from this call site; a line that follows refused ones says that some were left
 * out. */
#define log_limited(level, fmt, ...)                                                                                   \
	do {                                                                                                           \
		static struct log_limit limit_;                                                                        \
		uint32_t left_out_;                                                                                    \
		if (log_limit_pass(&limit_, &left_out_)) {                                                             \
			log_write(level, __FILE__, __LINE__, __func__, fmt "%s", ##__VA_ARGS__,                        \
				  left_out_ ? " (some earlier lines left out)" : "");                                  \
		}                                                                                                      \
	} while (0)

/* Sets up to which level lines are printed to stderr; NOTICE by default. Control thread. */
void log_set_print_level(enum log_level level);
/* The level that log_set_print_level() has set. */
enum log_level log_get_print_level(void);
/* Sets up to which level lines go to syslog; DISABLED by default. Control thread. */
void log_set_level(enum log_level level);
/* The level that log_set_level() has set. */
enum log_level log_get_level(void);
/* Whether lines on stderr begin with the time of day; true by default. Control thread. */
void log_enable_timestamps(bool on);
/* Turns a flag on or off; "all" means every flag. 0, or -ENOENT: no such flag. Control thread. */
int log_set_flag(const char *name, bool on);
/* The first of all flags, which are linked through `link`. Any thread. */
const struct log_flag *log_first_flag(void);
/* The name of a level as operators write it, in capitals: "NOTICE". */
const char *log_level_name(enum log_level level);
/* The level of that name (log_level_name()), in any case: 0 and *level, or -EINVAL. */
int log_level_parse(const char *name, enum log_level *level);

#endif
