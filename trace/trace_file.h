/* SPDX-License-Identifier: BSD-3-Clause */
/* The format of the trace file, /dev/shm/<name>_trace.pid<N>, which is the recorder's memzone. Little-endian.
 *
 * Sections 0 to 6 have the layout of SPDK 26.05, so that a stock reader works; sections 7 and up are varve's, and a
 * stock reader skips them. All offsets are from byte 0 of the file; an offset of 0 means absent. A reader must trust
 * nothing in the file: the writer may have died at any moment, and the file may come from anywhere.
 *
 * How a reader tells a whole entry from a torn one
 * ------------------------------------------------
 * Each history is a ring with one writer. Entry number i (counted from 0, ever growing) lies in slot i & (num_entries -
 * 1). A slot also has a stamp, stamp(i) = low32(tsc of the entry) << 32 | low32(i + 1), in an array of its own (section
 * 7). All stamp arrays lie behind all histories. For each slot the writer stores, in this order:
 *
 *     1. the stamp      2. the entry's other bytes      3. the entry's tsc      and, after all slots of the event:
 *     4. next_entry, by a store with release order
 *
 * (a) A copy that goes up in address (cp, read(), dd) reads next_entry = w first, then the entries, then the stamps.
 * Take slot s, and say the copy has stamp(i) for it, with i mod num_entries == s, and the copied tsc agrees with the
 * stamp.
 *
 *   No byte is newer than entry i. A byte of entry i + num_entries (or later) is stored after that entry's stamp; had
 * the copy seen such a byte, it would have seen that stamp or a later one when it came to the stamps.
 *
 *   No byte is older than entry i. If i < w: next_entry was stored after all bytes of entry i, and it was seen before
 *   any byte of the slot was read, so this holds in whatever order the bytes of the slot were read. If i >= w (written
 *   while the copy was under way): the tsc is the entry's first word and was stored last; the copy read it first and
 *   saw entry i's, so every byte it read after that is of entry i or newer. Could the tsc of an older entry pass for
 *   that of entry i? Only if their low 32 bits are equal, with the entries at least num_entries records apart and less
 *   than one ring turn of the copy's reading time between them: the reader also demands that the tscs it accepts never
 *   decrease with i, which leaves an exact multiple of 2^32 ticks, within the nanoseconds between two loads.
 *
 * So an accepted slot is exactly entry i. All other slots are dropped and counted. It does not matter how long the copy
 * pauses, or where. The copy must (1) read pages in ascending order and (2), for entries with i >= w, read the first
 * word of 32 aligned bytes not later than the others. The kernel's copy loops and rep movs do. A memcpy()
 * in user space may load the tail of its range first, and glibc's interleaves up to four pages when the range is large:
 * hence TRACE_FILE_GAP bytes lie between the last entry and the first stamp, and behind the last stamp; for (2) such a
 * copier must drop i >= w, or check next_entry afterwards as in (b).
 *
 * (b) A reader that has the live file mapped reads next_entry (acquire), copies, fences (acquire), reads next_entry
 * again = w2, and keeps i < w with i >= w2 + reserve - num_entries. Entries at w2 and up may be under way: at most one
 * event, TRACE_FILE_MAX_SLOTS long; hence reserve = TRACE_FILE_MAX_SLOTS. The stamps are a second check: copied after
 * the entries (with an acquire fence between), they must agree as in (a).
 *
 * (c) After the writer's death the page cache holds all its stores up to some point, in program order. The event that
 * was being written has i >= next_entry; it has overwritten the oldest slots, whose stamps do not agree any more.
 *
 * On x86 stores become visible in program order and loads are performed in order (TSO), so the order above only binds
 * the compiler. On arm64 the writer has a store barrier between 1 and 2, and 3 and 4 are store-release. The library's
 * snapshot (b) has load barriers, so its proof holds. A copier's plain loads may be reordered by the CPU, so there (a)
 * is not certain, only likely, because entry and stamp are far apart. An event of several slots is whole if all its
 * slots are accepted, with consecutive i and the same tsc.
 *
 * Owner descriptions are rewritten when an id is reused: the writer sets tsc to 0, writes, and stores the tsc last. A
 * live reader reads the tsc before and after; in a copy a description may be torn, but it is never unterminated. */
#ifndef TRACE_TRACE_FILE_H
#define TRACE_TRACE_FILE_H

#include <stddef.h>
#include <stdint.h>

enum {
	TRACE_SECTION_MAIN = 0,
	TRACE_SECTION_OWNER = 1,
	TRACE_SECTION_TPOINT_MASK = 2,
	TRACE_SECTION_OWNER_TYPE = 3,
	TRACE_SECTION_OBJECT = 4,
	TRACE_SECTION_TPOINT = 5,
	TRACE_SECTION_LCORE_OFFSETS = 6,
	/* varve's */
	TRACE_SECTION_STAMPS = 7,
	TRACE_SECTION_INFO = 8,
	TRACE_SECTION_LOSS = 9,
	TRACE_SECTION_CAUSE = 10, /* in copies that a trigger made */
	TRACE_NUM_SECTIONS,
	TRACE_NUM_STOCK_SECTIONS = TRACE_SECTION_LCORE_OFFSETS + 1,
};

enum {
	TRACE_NUM_GROUPS = 20,
	TRACE_TPOINTS_PER_GROUP = 64,
	TRACE_NUM_TPOINTS = TRACE_NUM_GROUPS * TRACE_TPOINTS_PER_GROUP,
	TRACE_TPOINT_ID_CONTINUATION = TRACE_NUM_TPOINTS, /* tpoint_id of a continuation slot */
	TRACE_MAX_ARGS = 8,
	TRACE_MAX_RELATIONS = 16,
	TRACE_NUM_TYPES = 256, /* owner types and object types */
	TRACE_NUM_OWNERS = 16384,
	TRACE_OWNER_DESCRIPTION_SIZE = 119,
	TRACE_TPOINT_NAME_SIZE = 24,
	TRACE_ARG_NAME_SIZE = 14,
	TRACE_THREAD_NAME_SIZE = 16,
	TRACE_ENTRY_ARG_BYTES = 8,         /* packed arguments in the entry itself */
	TRACE_CONTINUATION_ARG_BYTES = 22, /* and in each continuation */
	TRACE_FILE_MAX_ARG_BYTES = 255,    /* all arguments of one event that this recorder writes */
	TRACE_FILE_MAX_SLOTS = 13,         /* ... and so the slots one event takes: 1 + (255 - 8) / 22, rounded up */
	TRACE_FILE_GAP = 65536,
};

enum trace_arg_type {
	TRACE_ARG_INT = 0,
	TRACE_ARG_PTR = 1, /* printed in hexadecimal */
	TRACE_ARG_STR = 2, /* NUL-terminated within its size */
};

struct trace_file_header {
	uint64_t file_size; /* bytes */
	uint16_t num_sections;
	uint8_t reserved[6];
	uint64_t section_offset[TRACE_NUM_SECTIONS]; /* num_sections of them; stock has 7 */
};
_Static_assert(offsetof(struct trace_file_header, section_offset) == 16, "file header");

/* Section 0 */
struct trace_file_main {
	uint64_t tsc_rate;  /* ticks per second */
	uint64_t clear_tsc; /* readers ignore older events */
	uint8_t reserved[496];
};
_Static_assert(sizeof(struct trace_file_main) == 512, "MAIN");

/* Section 1: the head, then num_owners of struct trace_file_owner. Owner id 0 means none. */
struct trace_file_owner_section {
	uint16_t num_owners;
	uint16_t description_size;
	uint8_t reserved[124];
};
_Static_assert(sizeof(struct trace_file_owner_section) == 128, "OWNER");

/* With description_size as this recorder writes it; a reader steps by 9 + description_size. Events older than tsc
 * belong to an earlier owner of the same id. A released owner keeps its description until the id is reused. */
struct trace_file_owner {
	uint64_t tsc; /* when it was registered; 0: never used, or being rewritten */
	uint8_t type;
	char description[TRACE_OWNER_DESCRIPTION_SIZE];
} __attribute__((packed));
_Static_assert(sizeof(struct trace_file_owner) == 128, "owner");

/* The 128-byte head of sections 2 to 7; count items follow. */
struct trace_file_table {
	uint16_t count;
	uint8_t reserved[126];
};
_Static_assert(sizeof(struct trace_file_table) == 128, "table head");

/* Section 2: count = 20 masks, one uint64_t per group; bit n enables tracepoint n of the group. */

/* Sections 3 and 4: count = 256 */
struct trace_file_type {
	uint8_t type;
	char id_prefix;
};
_Static_assert(sizeof(struct trace_file_type) == 2, "owner and object type");

/* Section 5: count = 1280, indexed by tpoint_id; an unused one is all zeroes */
struct trace_file_arg {
	char name[TRACE_ARG_NAME_SIZE];
	uint8_t type; /* enum trace_arg_type */
	uint8_t size; /* bytes */
};
_Static_assert(sizeof(struct trace_file_arg) == 16, "argument");

struct trace_file_relation {
	uint8_t object_type; /* 0: none, ends the list */
	uint8_t arg_index;   /* the argument whose value is the id of the related object */
};

struct trace_file_tpoint {
	char name[TRACE_TPOINT_NAME_SIZE];
	uint16_t tpoint_id; /* group * 64 + number */
	uint8_t owner_type;
	uint8_t object_type;
	uint8_t new_object; /* this event is the object's birth */
	uint8_t num_args;
	struct trace_file_arg args[TRACE_MAX_ARGS];
	struct trace_file_relation related[TRACE_MAX_RELATIONS];
};
_Static_assert(sizeof(struct trace_file_tpoint) == 190, "tracepoint");
_Static_assert(offsetof(struct trace_file_tpoint, tpoint_id) == 24, "tracepoint id");
_Static_assert(offsetof(struct trace_file_tpoint, args) == 30, "tracepoint args");
_Static_assert(offsetof(struct trace_file_tpoint, related) == 158, "tracepoint relations");

/* In captures (file_writer.h) only: a tracepoint of this name that stands for entries which were lost there; its one
 * argument, of 8 bytes, says how many. It has the last id, which no other tracepoint uses. */
#define TRACE_LOST_NAME "TRACE_LOST"
enum { TRACE_LOST_TPOINT = TRACE_NUM_TPOINTS - 1 };

/* Section 6: count uint64_t offsets of histories. Slot n is lcore n up to the highest lcore; the slots after that are
 * for registered user threads. */

/* One slot of a ring: an entry ... */
struct trace_file_entry {
	uint64_t tsc; /* 0: never written */
	uint16_t tpoint_id;
	uint16_t owner_id;
	uint32_t size;
	uint64_t object_id;
	uint8_t args[TRACE_ENTRY_ARG_BYTES];
};
_Static_assert(sizeof(struct trace_file_entry) == 32, "entry");
_Static_assert(offsetof(struct trace_file_entry, args) == 24, "entry args");

/* ... or a continuation of the entry before it. Arguments are packed back to back, without alignment: the first 8 bytes
 * in the entry, the next 22 in the first continuation, and so on. */
struct trace_file_continuation {
	uint64_t tsc;       /* its entry's */
	uint16_t tpoint_id; /* TRACE_TPOINT_ID_CONTINUATION */
	uint8_t args[TRACE_CONTINUATION_ARG_BYTES];
};
_Static_assert(sizeof(struct trace_file_continuation) == 32, "continuation");

/* A ring. num_tpoint_ids counters, then num_entries slots; the entries' offset within is fixed for a file of this
 * recorder. */
struct trace_file_history {
	int32_t lcore;
	char tname[TRACE_THREAD_NAME_SIZE];
	uint8_t padding[4];
	uint64_t num_entries; /* a power of two */
	uint64_t num_tpoint_ids;
	uint64_t next_entry; /* ever growing; number of slots written */
	uint64_t tpoint_count[TRACE_NUM_TPOINTS];
	struct trace_file_entry entries[];
};
_Static_assert(offsetof(struct trace_file_history, num_entries) == 24, "history");
_Static_assert(offsetof(struct trace_file_history, next_entry) == 40, "history");
_Static_assert(offsetof(struct trace_file_history, tpoint_count) == 48, "history");
_Static_assert(sizeof(struct trace_file_history) == 48 + 8 * TRACE_NUM_TPOINTS, "history");

/* Section 7: a table head, then count uint64_t offsets, parallel to section 6, of arrays of num_entries stamps
 * (uint64_t). */
#define TRACE_FILE_STAMP(tsc, index) ((uint64_t)(tsc) << 32 | (uint32_t)((index) + 1))

/* Section 8 */
struct trace_file_clock {
	uint64_t tsc; /* 0: not filled in (yet) */
	uint64_t realtime_ns;
	uint64_t monotonic_ns;
};
_Static_assert(sizeof(struct trace_file_clock) == 24, "clock triple");

enum { TRACE_INFO_VERSION = 1, TRACE_INFO_NUM_CLOCKS = 64 };

enum trace_info_state {
	TRACE_INFO_RECORDING = 1, /* or killed, if no process holds the lock (flock) on the file */
	TRACE_INFO_STOPPED = 2,
	TRACE_INFO_CRASHED = 3,
};

enum trace_info_flags {
	TRACE_INFO_TSO =
		1 << 0, /* the writer's CPU makes stores visible in program order: (a) above holds for any cp */
	TRACE_INFO_LOCKED = 1 << 1, /* the file is locked in memory */
};

enum trace_info_crash_flags {
	TRACE_INFO_CRASH_CODE = 1 << 0, /* crash_code is known; it is not in files of older writers */
	TRACE_INFO_CRASH_SENT = 1 << 1, /* a process sent the signal: crash_sender and the two after it are known */
};

struct trace_file_info {
	uint16_t version; /* TRACE_INFO_VERSION; larger ones only add at the end */
	uint16_t num_clocks;
	uint32_t state; /* enum trace_info_state */
	uint32_t flags;
	uint32_t pid;
	uint64_t start_time_ticks; /* field 22 of /proc/PID/stat; pid, this and boot_id identify the process for ever */
	uint32_t num_reactors;
	uint32_t num_user_slots; /* the last ones of section 6 */
	char boot_id[40];        /* strings end with a NUL within their size */
	char app_name[32];
	char app_version[32];
	char build_id[64]; /* the GNU build id in hexadecimal */
	/* filled in by a crash handler */
	uint64_t crash_tsc; /* 0: none */
	uint64_t crash_address;
	int32_t crash_signal;
	uint32_t crash_tid;
	char crash_thread[TRACE_THREAD_NAME_SIZE];
	struct trace_file_clock end; /* at the stop or crash */
	/* filled in by a crash handler, too */
	uint32_t crash_flags;  /* enum trace_info_crash_flags */
	int32_t crash_code;    /* si_code of the signal: which fault, or that it was sent */
	uint32_t crash_sender; /* process id of the sender; 0: it is in another pid namespace */
	uint32_t crash_sender_uid;
	char crash_sender_name[TRACE_THREAD_NAME_SIZE]; /* empty: it had ended already */
	uint8_t reserved[80];
	struct trace_file_clock start;
	/* A ring of later ones: number k is clock[k % num_clocks]; next_clock counts them. tsc is stored last. */
	uint64_t next_clock;
	struct trace_file_clock clock[TRACE_INFO_NUM_CLOCKS];
};
_Static_assert(offsetof(struct trace_file_info, boot_id) == 32, "INFO");
_Static_assert(offsetof(struct trace_file_info, crash_tsc) == 200, "INFO");
_Static_assert(offsetof(struct trace_file_info, end) == 240, "INFO");
_Static_assert(offsetof(struct trace_file_info, crash_flags) == 264, "INFO");
_Static_assert(offsetof(struct trace_file_info, start) == 376, "INFO");
_Static_assert(offsetof(struct trace_file_info, clock) == 408, "INFO");

/* Section 9: why events are missing from the rings. num_slots of struct trace_file_slot_loss follow, parallel to
 * section
 * 6. A ring has overwritten next_entry - num_entries slots, if that is positive. */
struct trace_file_loss {
	uint16_t num_slots;
	uint16_t slot_size; /* bytes of one struct trace_file_slot_loss */
	uint32_t reserved0;
	uint64_t no_slot;          /* events from threads that are neither a reactor nor registered */
	uint64_t owner_table_full; /* owners that got no id */
	uint64_t mask_changes;     /* how often the masks have changed */
	uint64_t mask_change_tsc;  /* when they changed last */
	uint64_t off_count;        /* how often all tracepoints were disabled */
	uint64_t off_ticks;        /* how long all were disabled, in total, up to when one was enabled last */
	uint64_t off_since_tsc;    /* since when all are disabled; 0: some are enabled */
	uint64_t threads_refused;  /* user threads that found no free slot */
	uint8_t reserved[56];
};
_Static_assert(sizeof(struct trace_file_loss) == 128, "LOSS");

struct trace_file_slot_loss {
	uint64_t strings_truncated; /* string arguments longer than their size */
	uint64_t attach_tsc;        /* older events are of a thread that had this slot before */
	uint64_t attaches;
	uint8_t reserved[40]; /* one cache line each */
};
_Static_assert(sizeof(struct trace_file_slot_loss) == 64, "slot loss");

/* A copy that a trigger made may have one ring more than the live file, "kept", as the last line of sections 6 and 7,
 * which then lie behind section 10: it has those events of the culprit that the other rings have overwritten, from all
 * of them, in the order of time. It is no user slot, and section 9 has no line for it. */

/* Section 10, at the end of a copy that a trigger made: why it was made, and which object or reactor (the culprit) was
 * the cause. Texts end with a NUL within their size; an empty text means not known. */
enum { TRACE_CAUSE_VERSION = 1 };

struct trace_file_cause {
	uint16_t version;    /* TRACE_CAUSE_VERSION; larger ones only add in the reserved bytes */
	uint8_t object_type; /* of the culprit; 0: the culprit is no object of the trace */
	uint8_t reserved0;
	int32_t lcore; /* of the reactor that is the culprit; -1: the culprit is no reactor */
	uint64_t tsc;  /* when the trigger fired */
	uint64_t realtime_ns;
	uint64_t object_id;        /* the culprit's value in the rings, or 0 */
	uint64_t object_start_tsc; /* the culprit's life began then or a moment later; older events are of other objects
				    */
	uint64_t measured_ticks;   /* the culprit's age, time in its state, or time without a sign of life; or 0 */
	uint64_t limit_ticks;      /* the limit that was exceeded, or 0 */
	uint32_t status;           /* NVMe status of an I/O error, or 0 */
	uint32_t reserved1;
	char trigger[32]; /* the trigger's name ... */
	char type[24];    /* ... and type: "request_age" */
	char state[32];   /* of the culprit */
	char waits_for[40];
	char owner[256]; /* of the culprit: a host's NQN, a bdev, a thread */
	char text[512];  /* the cause in a sentence */
	uint8_t reserved[64];
};
_Static_assert(offsetof(struct trace_file_cause, trigger) == 64, "CAUSE");
_Static_assert(sizeof(struct trace_file_cause) == 1024, "CAUSE");

#endif
