/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs interleavings in child processes, so that one that ends by a signal or a sanitizer's report does not end the
 * test; shortens those that fail; prints the rest, so that it can be carried out again.
 *
 *     unit-overlap                          as a unit test
 *     VARVE_SEED=N VARVE_ROUNDS=N           which interleavings, and how many (VARVE_OPS: of how many operations each)
 *     VARVE_SECONDS=N                       until so much time has passed, instead of VARVE_ROUNDS
 *     unit-overlap --replay FILE            carries out the operations of a file, and says what it does
 *     unit-overlap --seed N                 the same for a seed */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "unittest/overlap/overlap.h"
#include "util/log.h"

#define DEFAULT_SECONDS 20
#define DEFAULT_OPS     110
#define BATCH           50 /* interleavings of one process */
#define SIGNATURE_MAX   160
#define WATCH_SECONDS   120  /* of CPU time that an interleaving may take: longer means that it hangs */
#define IDLE_SECONDS    3600 /* the same for one that takes no CPU time at all */
#define SHORTEN_SECONDS 150
#define HANG_SECONDS    10  /* of CPU time, while what hangs is shortened */
#define PLANTED_SEEDS   100 /* among so many, a planted fault is found */
#define HANGS           "OVERLAP: hangs"

/* What a child tells before it ends, whichever way. */
static struct progress {
	uint64_t seed;
	unsigned rounds;
	uint64_t ops, steps;
} * progress;

static char log_path[64];
static unsigned watch_seconds = WATCH_SECONDS;

/* ---- Children ---- */

struct job {
	const struct ov_op *ops; /* NULL: those of seeds */
	unsigned n_ops;
	uint64_t seed;
	unsigned rounds, ops_each;
};

static void ops_print(FILE *f, const struct ov_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		fprintf(f, "%-16s %3u %3u %3u %3u %3u  steps %u seed 0x%lx\n", ov_kind_names[ops[i].kind], ops[i].a[0],
			ops[i].a[1], ops[i].a[2], ops[i].a[3], ops[i].a[4], ops[i].steps, (unsigned long)ops[i].seed);
	}
}

/* What a child carries out, for when it hangs. */
static const struct ov_op *running;
static unsigned n_running;

/* The process ends, so that nothing is lost if this interrupts what it uses. */
static void watch_fired(int sig)
{
	fprintf(stderr, HANGS ": no end after %u s %s\nseed %lu, operation %u of these:\n",
		sig == SIGPROF ? watch_seconds : IDLE_SECONDS, sig == SIGPROF ? "of CPU time" : "without CPU time",
		(unsigned long)progress->seed, ov_running());
	ops_print(stderr, running, n_running);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_print_stack_trace();
#endif
	abort();
}

static void watch_start(const struct ov_op *ops, unsigned n)
{
	const struct itimerval limit = {.it_value.tv_sec = watch_seconds};

	running = ops;
	n_running = n;
	signal(SIGPROF, watch_fired);
	signal(SIGALRM, watch_fired);
	setitimer(ITIMER_PROF, &limit, NULL);
	alarm(IDLE_SECONDS);
}

static void child_main(const struct job *job)
{
	static struct ov_op made[OV_OPS_MAX];

	ov_start();
	if (ov_verbose) {
		log_set_print_level(LOG_LEVEL_NOTICE);
	}
	for (unsigned i = 0; i < job->rounds; i++) {
		const struct ov_op *ops = job->ops != NULL ? job->ops : made;
		unsigned n = job->n_ops;
		progress->seed = job->seed + i;
		if (job->ops == NULL) {
			n = ov_generate(job->seed + i, job->ops_each, made);
		}
		watch_start(ops, n);
		ov_run(ops, n);
		progress->rounds++;
		progress->ops += n;
		progress->steps = sim_steps();
	}
	ov_stop();
	ov_ptpl_remove(getpid());
}

/* Runs a job in a child, whose output goes to the log. True: it did well. */
static bool child_run(const struct job *job)
{
	int status;

	memset(progress, 0, sizeof(*progress));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		child_main(job);
		exit(0); /* the leak check follows */
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	ov_ptpl_remove(pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- What went wrong ---- */

/* Copies what comes from a mark on, without numbers, which differ from run to run. */
static void signature_copy(char *signature, const char *at)
{
	size_t n = 0;

	for (; *at != 0 && *at != '\n' && n < SIGNATURE_MAX / 2 && strncmp(at, " on address", 11) != 0; at++) {
		if (!isdigit((unsigned char)*at)) {
			signature[n++] = *at;
		}
	}
	signature[n] = 0;
}

/* A frame of a sanitizer's report in code of the product: its function. */
static bool signature_add_frame(char *signature, const char *line)
{
	const char *in = strstr(line, " in "), *file = strstr(line, " ../");
	size_t n = strlen(signature);

	if (strstr(line, " #") == NULL || in == NULL || file == NULL || strstr(line, "unittest") != NULL ||
	    strstr(line, "libsanitizer") != NULL || strstr(line, "../sysdeps") != NULL ||
	    strstr(line, "../csu") != NULL) {
		return false;
	}
	snprintf(signature + n, SIGNATURE_MAX - n, " %.*s", (int)(file - in), in);
	return true;
}

/* What the log says. */
static void log_signature(char signature[SIGNATURE_MAX])
{
	static const char *const marks[] = {"OVERLAP:", "Sanitizer:", "Assertion", "state machine", "runtime error:"};
	char line[1024];
	FILE *f = fopen(log_path, "re");
	bool found = false, complete = false;

	snprintf(signature, SIGNATURE_MAX, "no answer, or a signal");
	while (f != NULL && !complete && fgets(line, sizeof(line), f) != NULL) {
		for (unsigned i = 0; i < sizeof(marks) / sizeof(marks[0]) && !found; i++) {
			const char *at = strstr(line, marks[i]);
			if (at != NULL) {
				signature_copy(signature, at);
				found = true;
				complete = i != 1;
			}
		}
		complete = complete || (found && signature_add_frame(signature, line));
	}
	if (f != NULL) {
		fclose(f);
	}
}

static void log_print(unsigned max_lines)
{
	char line[1024];
	FILE *f = fopen(log_path, "re");

	while (f != NULL && max_lines-- > 0 && fgets(line, sizeof(line), f) != NULL) {
		printf("    %s", line);
	}
	if (f != NULL) {
		fclose(f);
	}
}

/* ---- Shortening: delta debugging over the list of operations ---- */

static time_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static bool ops_fail_so(const struct ov_op *ops, unsigned n, const char *signature)
{
	char found[SIGNATURE_MAX];

	if (child_run(&(struct job){.ops = ops, .n_ops = n, .rounds = 1})) {
		return false;
	}
	log_signature(found);
	return strcmp(found, signature) == 0;
}

static unsigned ops_cut(const struct ov_op *ops, unsigned n, unsigned from, unsigned count, struct ov_op *out)
{
	memcpy(out, ops, from * sizeof(*ops));
	memcpy(out + from, ops + from + count, (n - from - count) * sizeof(*ops));
	return n - count;
}

static unsigned ops_shorten(struct ov_op *ops, unsigned n, const char *signature)
{
	static struct ov_op fewer[OV_OPS_MAX];
	time_t end = now_s() + SHORTEN_SECONDS;
	unsigned watch = watch_seconds;

	if (strncmp(signature, HANGS, sizeof(HANGS) - 1) == 0) {
		watch_seconds = watch < HANG_SECONDS ? watch : HANG_SECONDS;
	}
	for (unsigned part = n / 2; part >= 1 && now_s() < end;) {
		bool any = false;
		for (unsigned at = 0; at + part <= n && now_s() < end;) {
			unsigned m = ops_cut(ops, n, at, part, fewer);
			if (ops_fail_so(fewer, m, signature)) {
				memcpy(ops, fewer, m * sizeof(*ops));
				n = m;
				any = true;
			} else {
				at += part;
			}
		}
		if (part == 1 && !any) {
			break;
		}
		part = any && part < n ? part : part / 2;
		part = part == 0 && any ? 1 : part;
	}
	watch_seconds = watch;
	return n;
}

static bool op_parse(const char *line, struct ov_op *op)
{
	char name[32];
	unsigned a[OV_ARGS], steps;
	unsigned long seed;

	if (sscanf(line, "%31s %u %u %u %u %u steps %u seed %lx", name, &a[0], &a[1], &a[2], &a[3], &a[4], &steps,
		   &seed) != 8) {
		return false;
	}
	for (unsigned k = 0; k < OV_KINDS; k++) {
		if (strcmp(name, ov_kind_names[k]) == 0) {
			*op = (struct ov_op){.kind = (uint8_t)k, .steps = (uint16_t)steps, .seed = seed};
			for (unsigned i = 0; i < OV_ARGS; i++) {
				op->a[i] = (uint8_t)a[i];
			}
			return true;
		}
	}
	return false;
}

static unsigned ops_read(const char *path, struct ov_op *ops)
{
	char line[256];
	unsigned n = 0;
	FILE *f = fopen(path, "re");

	while (f != NULL && n < OV_OPS_MAX && fgets(line, sizeof(line), f) != NULL) {
		n += op_parse(line, &ops[n]);
	}
	if (f != NULL) {
		fclose(f);
	}
	return n;
}

/* ---- Runs ---- */

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

/* Whether a failure of that kind has been told before. */
static bool failure_is_known(const char *signature)
{
	static char known[64][SIGNATURE_MAX];
	static unsigned n;

	for (unsigned i = 0; i < n; i++) {
		if (strcmp(known[i], signature) == 0) {
			return true;
		}
	}
	if (n < sizeof(known) / sizeof(known[0])) {
		strcpy(known[n++], signature);
	}
	return false;
}

/* Says what fails, with as few operations as do it, into a file and to the reader. Returns their number. */
static unsigned failure_tell(uint64_t seed, unsigned ops_each)
{
	static struct ov_op ops[OV_OPS_MAX];
	char signature[SIGNATURE_MAX], path[64];
	unsigned n = ov_generate(seed, ops_each, ops);

	log_signature(signature);
	if (failure_is_known(signature)) {
		printf("seed %lu fails too: %s\n", (unsigned long)seed, signature);
		return 0;
	}
	n = ops_shorten(ops, n, signature);
	bool again = ops_fail_so(ops, n, signature);
	snprintf(path, sizeof(path), "/tmp/varve-overlap-%lu.ops", (unsigned long)seed);
	FILE *f = fopen(path, "we");
	if (f != NULL) {
		ops_print(f, ops, n);
		fclose(f);
	}
	printf("seed %lu fails: %s\n%s operations are enough; unit-overlap --replay %s\n", (unsigned long)seed,
	       signature, again ? "These" : "(not each time) These", path);
	ops_print(stdout, ops, n);
	log_print(60);
	return n;
}

/* A batch has failed. The seed that did it; 0: only all of them together did. */
static uint64_t batch_culprit(const struct job *job)
{
	uint64_t seed = progress->seed;

	if (!child_run(&(struct job){.seed = seed, .rounds = 1, .ops_each = job->ops_each})) {
		return seed;
	}
	for (unsigned i = 0; i < job->rounds; i++) { /* a leak shows at the end only */
		if (!child_run(&(struct job){.seed = job->seed + i, .rounds = 1, .ops_each = job->ops_each})) {
			return job->seed + i;
		}
	}
	return 0;
}

/* Runs interleavings from a seed on. Returns how many of them fail. */
static unsigned overlap_run(uint64_t seed, unsigned rounds, time_t seconds, unsigned ops_each, unsigned max_failures)
{
	time_t begin = now_s();
	uint64_t ops = 0, steps = 0, done = 0;
	unsigned failures = 0;

	while ((seconds != 0 ? now_s() - begin < seconds : done < rounds) && failures < max_failures) {
		struct job job = {.seed = seed + done, .rounds = BATCH, .ops_each = ops_each};
		if (seconds == 0 && rounds - done < BATCH) {
			job.rounds = (unsigned)(rounds - done);
		}
		bool well = child_run(&job);
		ops += progress->ops;
		steps += progress->steps;
		done += progress->rounds;
		if (!well) {
			uint64_t culprit = batch_culprit(&job);
			failures++;
			if (culprit == 0) {
				printf("seeds %lu to %lu fail together, and none of them alone\n",
				       (unsigned long)job.seed, (unsigned long)(job.seed + job.rounds - 1));
				child_run(&job);
				log_print(60);
				done = job.seed - seed + job.rounds;
			} else {
				failure_tell(culprit, ops_each);
				done = culprit - seed + 1;
			}
		}
		if (getenv("VARVE_PROGRESS") != NULL) {
			printf("%lu interleavings, %lu operations, %lu steps, %ld s, %u failures\n",
			       (unsigned long)done, (unsigned long)ops, (unsigned long)steps, (long)(now_s() - begin),
			       failures);
		}
	}
	printf("seeds %lu to %lu: %lu operations in %lu interleavings, %lu steps, %u failures\n", (unsigned long)seed,
	       (unsigned long)(seed + done - 1), (unsigned long)ops, (unsigned long)done, (unsigned long)steps,
	       failures);
	return failures;
}

/* ---- Tests ---- */

static void test_operations_that_overlap_leave_nothing_behind(void)
{
	uint64_t rounds = env_number("VARVE_ROUNDS", 0);
	uint64_t seconds = env_number("VARVE_SECONDS", rounds == 0 ? DEFAULT_SECONDS : 0);

	CU_ASSERT_EQUAL(overlap_run(env_number("VARVE_SEED", (uint64_t)time(NULL)), (unsigned)rounds, (time_t)seconds,
				    (unsigned)env_number("VARVE_OPS", DEFAULT_OPS),
				    (unsigned)env_number("VARVE_FAILURES", 1)),
			0);
}

/* Looks for an interleaving in which a planted fault shows. Returns its seed. */
static uint64_t find_planted_fault(char signature[SIGNATURE_MAX])
{
	uint64_t seed = 1;

	while (seed < PLANTED_SEEDS && child_run(&(struct job){.seed = seed, .rounds = 1, .ops_each = DEFAULT_OPS})) {
		seed++;
	}
	log_signature(signature);
	printf("seed %lu: %s\n", (unsigned long)seed, signature);
	CU_ASSERT_PTR_NOT_NULL(strstr(signature, "was carried out after its host had been told"));
	return seed;
}

/* A bdev that carries out what it has reported as aborted. */
static void test_a_planted_fault_is_found_and_shortened(void)
{
	static struct ov_op ops[OV_OPS_MAX];
	char signature[SIGNATURE_MAX];

	ov_plant_stale_write = true;
	uint64_t seed = find_planted_fault(signature);
	unsigned n = ov_generate(seed, DEFAULT_OPS, ops), fewer = ops_shorten(ops, n, signature);
	ov_plant_stale_write = false;
	printf("%u operations of %u are enough\n", fewer, n);
	CU_ASSERT(fewer < n / 2);
}

/* A host that does not wait until a controller that it has lost has ended, before it sends writes elsewhere. */
static void test_a_host_without_fences_is_found(void)
{
	char signature[SIGNATURE_MAX];

	ov_plant_no_fences = true;
	find_planted_fault(signature);
	ov_plant_no_fences = false;
}

static bool log_has(const char *text)
{
	char line[1024];
	FILE *f = fopen(log_path, "re");
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		found = strstr(line, text) != NULL;
	}
	if (f != NULL) {
		fclose(f);
	}
	return found;
}

/* It ends by its own CPU time, and says what it did. */
static void test_an_interleaving_that_hangs_is_found(void)
{
	char signature[SIGNATURE_MAX];

	ov_plant_hang = true;
	watch_seconds = 1;
	CU_ASSERT_FALSE(child_run(&(struct job){.seed = 77, .rounds = 1, .ops_each = DEFAULT_OPS}));
	watch_seconds = WATCH_SECONDS;
	ov_plant_hang = false;
	log_signature(signature);
	CU_ASSERT_NSTRING_EQUAL(signature, HANGS, sizeof(HANGS) - 1);
	CU_ASSERT_TRUE(log_has("seed 77, operation"));
	CU_ASSERT_TRUE(log_has("tgt_create"));
}

static int suite_start(void)
{
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(log_path, sizeof(log_path), "/tmp/varve-overlap-%d.log", getpid());
	return progress == MAP_FAILED;
}

static int suite_stop(void)
{
	return unlink(log_path) != 0 && errno != ENOENT;
}

static const struct unit_test tests[] = {
	UNIT(test_operations_that_overlap_leave_nothing_behind),
	UNIT(test_a_planted_fault_is_found_and_shortened),
	UNIT(test_a_host_without_fences_is_found),
	UNIT(test_an_interleaving_that_hangs_is_found),
	UNIT_END,
};

int main(int argc, char **argv)
{
	static struct ov_op ops[OV_OPS_MAX];

	if (argc == 3 && (strcmp(argv[1], "--replay") == 0 || strcmp(argv[1], "--seed") == 0)) {
		unsigned n = argv[1][2] == 'r' ? ops_read(argv[2], ops)
					       : ov_generate(strtoull(argv[2], NULL, 0),
							     (unsigned)env_number("VARVE_OPS", DEFAULT_OPS), ops);
		progress = &(struct progress){0};
		ov_verbose = true;
		child_main(&(struct job){.ops = ops, .n_ops = n, .rounds = 1});
		return 0;
	}
	return unit_run("overlap", tests, suite_start, suite_stop, argc, argv);
}
