/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread of its own for libavahi-client, whose calls wait for answers of avahi-daemon on the D-Bus: if that hangs,
 * only this thread does. The control thread stores the wanted records, or the request to end, in the session and wakes
 * the thread. When avahi-daemon or the bus goes, the thread waits for it to come back. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include <rte_common.h>

#include "env_dpdk/env.h"
#include "nvmf/mdns_internal.h"
#include "nvmf/mdns_library.h"
#include "thread/thread.h"
#include "util/log.h"

#define RETRY_MS  2000
#define NAMES_MAX 100 /* that are tried for a record if others have its name */

struct nvmf_mdns_library nvmf_mdns_avahi;

/* A record that avahi-daemon has, or was asked to have. */
struct mdns_entry {
	struct nvmf_mdns_session *session;
	struct nvmf_mdns_record record;
	char name[NVMF_MDNS_NAME_MAX + 1]; /* record.name, or one like it that nobody has */
	unsigned names;                    /* that were tried */
	AvahiEntryGroup *group;            /* NULL: it is to be asked for, or was refused */
	AvahiEntryGroupState state;        /* FAILURE: it is asked for again after RETRY_MS */
	uint64_t failed_ticks;             /* FAILURE: since when */
	int logged_error;                  /* that the log has already; 0: none */
	bool is_wanted;
	TAILQ_ENTRY(mdns_entry) link;
};

struct nvmf_mdns_session {
	pthread_mutex_t mutex; /* never held during a call of the library */
	/* Under the mutex. */
	struct nvmf_mdns_record *wanted; /* that the thread has not taken yet, or NULL */
	size_t n_wanted;
	bool ending, told_posted;
	unsigned refs; /* the control thread's, the thread's, the message's */
	/* Of the message, from when it is posted on. */
	struct thread_msg msg;
	int rc;
	char why[NVMF_ERROR_MAX];
	void (*told)(void *arg, int rc, const char *why);
	void *arg;
	int wake_fd;
	/* The thread's. */
	AvahiSimplePoll *poll;
	AvahiClient *client;
	AvahiClientState state; /* of the client */
	bool lost;              /* the client is of no use any more */
	bool changed;           /* entries are to be looked at */
	bool was_up;
	TAILQ_HEAD(, mdns_entry) entries;
};

/* ---- Both threads ---- */

static void session_release(struct nvmf_mdns_session *s)
{
	pthread_mutex_lock(&s->mutex);
	unsigned refs = --s->refs;
	pthread_mutex_unlock(&s->mutex);
	if (refs == 0) {
		pthread_mutex_destroy(&s->mutex);
		close(s->wake_fd);
		free(s->wanted);
		free(s);
	}
}

static bool session_is_ending(struct nvmf_mdns_session *s)
{
	pthread_mutex_lock(&s->mutex);
	bool ending = s->ending;
	pthread_mutex_unlock(&s->mutex);
	return ending;
}

static void session_deliver(struct thread_msg *msg)
{
	struct nvmf_mdns_session *s = container_of(msg, struct nvmf_mdns_session, msg);

	if (!session_is_ending(s)) {
		s->told(s->arg, s->rc, s->why);
	}
	session_release(s);
}

/* ---- The thread ---- */

/* The first result is for the caller of nvmf_mdns_session_start(). */
__attribute__((format(printf, 3, 4))) static void session_tell(struct nvmf_mdns_session *s, int rc, const char *fmt,
							       ...)
{
	va_list ap;

	pthread_mutex_lock(&s->mutex);
	bool is_first = !s->told_posted && !s->ending;
	if (is_first) {
		s->told_posted = true;
		s->refs++;
		s->rc = rc;
		va_start(ap, fmt);
		vsnprintf(s->why, sizeof(s->why), fmt, ap);
		va_end(ap);
		thread_post(thread_control(), &s->msg, session_deliver);
	}
	pthread_mutex_unlock(&s->mutex);
}

static void mdns_entry_free(struct mdns_entry *e)
{
	if (e->group != NULL) {
		nvmf_mdns_avahi.avahi_entry_group_free(e->group);
	}
	TAILQ_REMOVE(&e->session->entries, e, link);
	free(e);
}

/* The library must not be called for a group within this. */
static void entry_changed(AvahiEntryGroup *group, AvahiEntryGroupState state, void *arg)
{
	struct mdns_entry *e = arg;

	e->state = state;
	e->session->changed = true;
}

static int entry_add_service(const struct mdns_entry *e)
{
	AvahiStringList *txt = nvmf_mdns_avahi.avahi_string_list_new("p=tcp", "nqn=" NVMF_DISCOVERY_NQN, NULL);

	if (txt == NULL) {
		return AVAHI_ERR_NO_MEMORY;
	}
	int rc = nvmf_mdns_avahi.avahi_entry_group_add_service_strlst(
		e->group, e->record.interface == 0 ? AVAHI_IF_UNSPEC : e->record.interface,
		e->record.ipv6 ? AVAHI_PROTO_INET6 : AVAHI_PROTO_INET, 0, e->name, NVMF_MDNS_TYPE, NULL, NULL,
		e->record.port, txt);
	nvmf_mdns_avahi.avahi_string_list_free(txt);
	return rc;
}

static int entry_rename(struct mdns_entry *e)
{
	char *name = nvmf_mdns_avahi.avahi_alternative_service_name(e->name);

	if (name == NULL || ++e->names >= NAMES_MAX) {
		nvmf_mdns_avahi.avahi_free(name);
		return AVAHI_ERR_COLLISION;
	}
	snprintf(e->name, sizeof(e->name), "%s", name);
	nvmf_mdns_avahi.avahi_free(name);
	return 0;
}

static int entry_try(struct mdns_entry *e)
{
	int rc = entry_add_service(e);

	while (rc == AVAHI_ERR_COLLISION && entry_rename(e) == 0) { /* another program on this machine has the name */
		rc = entry_add_service(e);
	}
	return rc != 0 ? rc : nvmf_mdns_avahi.avahi_entry_group_commit(e->group);
}

/* The client is of no use any more: it has to be another one. */
static bool error_is_of_client(int error)
{
	return error == AVAHI_ERR_DBUS_ERROR || error == AVAHI_ERR_BAD_STATE || error == AVAHI_ERR_TIMEOUT ||
	       error == AVAHI_ERR_DISCONNECTED || error == AVAHI_ERR_NO_DAEMON;
}

/* The record is not there. It is tried again after RETRY_MS, under its first name. */
static void entry_failed(struct mdns_entry *e)
{
	if (e->group != NULL) {
		nvmf_mdns_avahi.avahi_entry_group_free(e->group);
		e->group = NULL;
	}
	e->state = AVAHI_ENTRY_GROUP_FAILURE;
	e->failed_ticks = env_ticks();
	e->names = 0;
	snprintf(e->name, sizeof(e->name), "%s", e->record.name);
}

static void entry_refused(struct mdns_entry *e, int error)
{
	struct nvmf_mdns_session *s = e->session;
	const char *why = nvmf_mdns_avahi.avahi_strerror(error);

	if (e->logged_error != error) {
		e->logged_error = error;
		log_warning("mDNS: hosts cannot find the discovery service at port %u: avahi-daemon refuses \"%s\": %s",
			    e->record.port, e->name, why);
	}
	session_tell(s, -EIO, "avahi-daemon refuses \"%s\": %s", e->name, why);
	entry_failed(e);
	s->lost = s->lost || error_is_of_client(error);
}

/* Asks avahi-daemon for the record. */
static void entry_publish(struct mdns_entry *e)
{
	struct nvmf_mdns_session *s = e->session;
	int rc;

	e->state = AVAHI_ENTRY_GROUP_UNCOMMITED;
	e->group = nvmf_mdns_avahi.avahi_entry_group_new(s->client, entry_changed, e);
	rc = e->group == NULL ? nvmf_mdns_avahi.avahi_client_errno(s->client) : entry_try(e);
	if (rc != 0) {
		entry_refused(e, rc);
	}
}

/* Another machine has the name. */
static void entry_collided(struct mdns_entry *e)
{
	nvmf_mdns_avahi.avahi_entry_group_free(e->group);
	e->group = NULL;
	if (entry_rename(e) == 0) {
		entry_publish(e);
		return;
	}
	if (e->logged_error != AVAHI_ERR_COLLISION) {
		e->logged_error = AVAHI_ERR_COLLISION;
		log_warning("mDNS: hosts cannot find the discovery service at port %u: others have \"%s\" and %d names "
			    "like it",
			    e->record.port, e->record.name, NAMES_MAX);
	}
	session_tell(e->session, -EADDRINUSE, "others have the name \"%s\" and %d like it", e->record.name, NAMES_MAX);
	entry_failed(e);
}

static void entries_drop(struct nvmf_mdns_session *s, bool all)
{
	struct mdns_entry *e, *next;

	for (e = TAILQ_FIRST(&s->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (all || !e->is_wanted) {
			mdns_entry_free(e);
		}
	}
}

/* All records are to be asked for anew. frees: their groups are freed; otherwise they have gone with the client. */
static void entries_lose_groups(struct nvmf_mdns_session *s, bool frees)
{
	struct mdns_entry *e;

	TAILQ_FOREACH (e, &s->entries, link) {
		if (frees && e->group != NULL) {
			nvmf_mdns_avahi.avahi_entry_group_free(e->group);
		}
		e->group = NULL;
		e->state = AVAHI_ENTRY_GROUP_UNCOMMITED;
	}
}

static struct mdns_entry *entry_find(struct nvmf_mdns_session *s, const struct nvmf_mdns_record *r)
{
	struct mdns_entry *e;

	TAILQ_FOREACH (e, &s->entries, link) {
		if (strcmp(e->record.name, r->name) == 0 && e->record.interface == r->interface) {
			return e;
		}
	}
	return NULL;
}

static void entry_want(struct nvmf_mdns_session *s, const struct nvmf_mdns_record *r)
{
	struct mdns_entry *e = entry_find(s, r);

	if (e == NULL && (e = calloc(1, sizeof(*e))) != NULL) {
		e->session = s;
		e->record = *r;
		snprintf(e->name, sizeof(e->name), "%s", r->name);
		TAILQ_INSERT_TAIL(&s->entries, e, link);
	}
	if (e != NULL) {
		e->is_wanted = true;
	} else {
		log_error("mDNS: out of memory: hosts do not find the discovery service at port %u", r->port);
	}
}

/* Takes the records that the control thread has left. */
static void session_take_wanted(struct nvmf_mdns_session *s)
{
	struct mdns_entry *e;

	pthread_mutex_lock(&s->mutex);
	struct nvmf_mdns_record *wanted = s->wanted;
	size_t n = s->n_wanted;
	s->wanted = NULL;
	pthread_mutex_unlock(&s->mutex);
	if (wanted == NULL) {
		return;
	}
	TAILQ_FOREACH (e, &s->entries, link) {
		e->is_wanted = false;
	}
	for (size_t i = 0; i < n; i++) {
		entry_want(s, &wanted[i]);
	}
	free(wanted);
	entries_drop(s, false);
}

static bool entries_are_up(const struct nvmf_mdns_session *s)
{
	const struct mdns_entry *e;

	TAILQ_FOREACH (e, &s->entries, link) {
		if (e->state != AVAHI_ENTRY_GROUP_ESTABLISHED) {
			return false;
		}
	}
	return true;
}

/* Milliseconds until a record that failed is to be tried again. */
static int entry_retry_ms(const struct mdns_entry *e)
{
	uint64_t gone_ms = env_ticks_to_ns(env_ticks() - e->failed_ticks) / 1000000;

	return gone_ms < RETRY_MS ? (int)(RETRY_MS - gone_ms) : 0;
}

/* Does what is due for a record. */
static void entry_work(struct mdns_entry *e)
{
	bool has_failed = e->state == AVAHI_ENTRY_GROUP_FAILURE;

	if (e->state == AVAHI_ENTRY_GROUP_COLLISION) {
		entry_collided(e);
	} else if (has_failed && e->group != NULL) { /* avahi-daemon has given it up */
		int error = nvmf_mdns_avahi.avahi_client_errno(e->session->client);
		entry_refused(e, error != 0 ? error : AVAHI_ERR_FAILURE);
	} else if (e->group == NULL && (!has_failed || entry_retry_ms(e) == 0)) {
		entry_publish(e);
	}
	if (e->state == AVAHI_ENTRY_GROUP_ESTABLISHED && e->logged_error != 0) {
		e->logged_error = 0;
		log_notice("mDNS: hosts find the discovery service at port %u again", e->record.port);
	}
}

/* The client can be used. */
static void session_work(struct nvmf_mdns_session *s)
{
	struct mdns_entry *e;

	TAILQ_FOREACH (e, &s->entries, link) {
		if (session_is_ending(s) || s->lost) {
			return;
		}
		entry_work(e);
	}
	if (!s->was_up && entries_are_up(s)) {
		s->was_up = true;
		log_notice("mDNS: hosts find the discovery service as " NVMF_MDNS_TYPE);
		session_tell(s, 0, "%s", "");
	}
}

static void session_client_changed(AvahiClient *client, AvahiClientState state, void *arg)
{
	struct nvmf_mdns_session *s = arg;

	s->state = state;
	s->changed = true;
	s->lost = s->lost || state == AVAHI_CLIENT_FAILURE;
}

static void session_close_client(struct nvmf_mdns_session *s)
{
	if (s->client != NULL) {
		nvmf_mdns_avahi.avahi_client_free(s->client);
		s->client = NULL;
		entries_lose_groups(s, false);
	}
}

static void session_open_client(struct nvmf_mdns_session *s)
{
	int error = 0;

	s->lost = false;
	s->state = AVAHI_CLIENT_CONNECTING;
	s->client = nvmf_mdns_avahi.avahi_client_new(nvmf_mdns_avahi.avahi_simple_poll_get(s->poll),
						     AVAHI_CLIENT_IGNORE_USER_CONFIG | AVAHI_CLIENT_NO_FAIL,
						     session_client_changed, s, &error);
	if (s->client == NULL) {
		session_tell(s, -ENOTCONN, "the D-Bus of the system cannot be reached: %s",
			     nvmf_mdns_avahi.avahi_strerror(error));
	} else if (s->state == AVAHI_CLIENT_CONNECTING) {
		session_tell(s, -ENOTCONN, "avahi-daemon does not run");
	}
}

/* avahi-daemon, or the bus, went; or this machine's name is being changed because another one has it. */
static void session_is_down(struct nvmf_mdns_session *s)
{
	if (s->was_up) {
		s->was_up = false;
		log_warning("mDNS: hosts cannot find the discovery service until avahi-daemon is there again");
	}
}

static void session_step(struct nvmf_mdns_session *s)
{
	session_take_wanted(s);
	if (s->lost) {
		session_is_down(s);
		session_close_client(s);
	}
	if (s->client == NULL) {
		session_open_client(s);
	}
	s->changed = false;
	if (s->client == NULL || s->lost) {
		return;
	}
	if (s->state == AVAHI_CLIENT_S_RUNNING) {
		session_work(s);
		return;
	}
	session_is_down(s);
	entries_lose_groups(s, true); /* the machine's name is another one when it runs again */
}

static void session_woken(AvahiWatch *w, int fd, AvahiWatchEvent event, void *arg)
{
	uint64_t n;

	(void)!read(fd, &n, sizeof(n));
}

static bool session_must_retry(const struct nvmf_mdns_session *s)
{
	return s->client == NULL || s->lost;
}

/* -1: nothing is due before something happens. */
static int session_wait_ms(const struct nvmf_mdns_session *s)
{
	const struct mdns_entry *e;
	int ms = -1;

	if (session_must_retry(s)) {
		return RETRY_MS;
	}
	TAILQ_FOREACH (e, &s->entries, link) {
		if (e->state == AVAHI_ENTRY_GROUP_FAILURE) {
			int left = entry_retry_ms(e);
			ms = ms < 0 || left < ms ? left : ms;
		}
	}
	return ms;
}

static void session_wait(struct nvmf_mdns_session *s)
{
	struct pollfd wake = {.fd = s->wake_fd, .events = POLLIN};

	if (nvmf_mdns_avahi.avahi_simple_poll_iterate(s->poll, session_wait_ms(s)) < 0) {
		poll(&wake, 1, RETRY_MS);
	}
}

static void session_loop(struct nvmf_mdns_session *s)
{
	while (!session_is_ending(s)) {
		session_step(s);
		if (!s->changed || session_must_retry(s)) {
			session_wait(s);
		}
	}
}

static const char *mdns_library_open(void)
{
	void *handle = dlopen("libavahi-client.so.3", RTLD_NOW | RTLD_LOCAL);

	if (handle == NULL) {
		return dlerror();
	}
#define MDNS_LIBRARY_FIND(function_)                                                                                   \
	if ((*(void **)&nvmf_mdns_avahi.function_ = dlsym(handle, #function_)) == NULL) {                              \
		return "it lacks " #function_;                                                                         \
	}
	MDNS_LIBRARY_FUNCTIONS(MDNS_LIBRARY_FIND)
#undef MDNS_LIBRARY_FIND
	return NULL;
}

/* Once; a test has filled in the functions before. */
static bool mdns_library_load(struct nvmf_mdns_session *s)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const char *why = NULL;

	pthread_mutex_lock(&lock);
	if (nvmf_mdns_avahi.avahi_client_new == NULL && (why = mdns_library_open()) != NULL) {
		memset(&nvmf_mdns_avahi, 0, sizeof(nvmf_mdns_avahi)); /* it is not used in part */
		session_tell(s, -ELIBACC,
			     "libavahi-client cannot be used: %.128s (Debian's package is "
			     "libavahi-client3)",
			     why);
	}
	pthread_mutex_unlock(&lock);
	return why == NULL;
}

static void session_run(struct nvmf_mdns_session *s)
{
	const AvahiPoll *api;
	AvahiWatch *wake;

	s->poll = nvmf_mdns_avahi.avahi_simple_poll_new();
	api = s->poll != NULL ? nvmf_mdns_avahi.avahi_simple_poll_get(s->poll) : NULL;
	wake = api != NULL ? api->watch_new(api, s->wake_fd, AVAHI_WATCH_IN, session_woken, s) : NULL;
	if (wake != NULL) {
		session_loop(s);
		session_close_client(s); /* first: what it closes at once, avahi-daemon withdraws by itself */
		entries_drop(s, true);
		api->watch_free(wake);
	} else {
		session_tell(s, -ENOMEM, "out of memory");
	}
	if (s->poll != NULL) {
		nvmf_mdns_avahi.avahi_simple_poll_free(s->poll);
	}
}

static void *session_main(void *arg)
{
	struct nvmf_mdns_session *s = arg;
	cpu_set_t cpus;

	if (env_worker_cpus(&cpus)) { /* those without a reactor, as for workers */
		pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	}
	if (mdns_library_load(s)) {
		session_run(s);
	}
	session_release(s);
	return NULL;
}

/* ---- The control thread ---- */

static struct nvmf_mdns_session *session_alloc(const struct nvmf_mdns_record *records, size_t n)
{
	struct nvmf_mdns_session *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		return NULL;
	}
	s->wanted = calloc(n, sizeof(*records));
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wanted == NULL || s->wake_fd < 0) {
		free(s->wanted);
		if (s->wake_fd >= 0) {
			close(s->wake_fd);
		}
		free(s);
		return NULL;
	}
	memcpy(s->wanted, records, n * sizeof(*records));
	s->n_wanted = n;
	s->refs = 2;
	pthread_mutex_init(&s->mutex, NULL);
	TAILQ_INIT(&s->entries);
	return s;
}

/* Signals are the other threads'. */
static int session_spawn(struct nvmf_mdns_session *s)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = -pthread_create(&thread, &attr, session_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

int nvmf_mdns_session_start(const struct nvmf_mdns_record *records, size_t n,
			    void (*told)(void *arg, int rc, const char *why), void *arg,
			    struct nvmf_mdns_session **session)
{
	struct nvmf_mdns_session *s = session_alloc(records, n);

	if (s == NULL) {
		return -ENOMEM;
	}
	s->told = told;
	s->arg = arg;
	int rc = session_spawn(s);
	if (rc != 0) {
		session_release(s);
		session_release(s);
		return rc;
	}
	*session = s;
	return 0;
}

static void session_wake(struct nvmf_mdns_session *s)
{
	uint64_t one = 1;

	(void)!write(s->wake_fd, &one, sizeof(one));
}

int nvmf_mdns_session_update(struct nvmf_mdns_session *s, const struct nvmf_mdns_record *records, size_t n)
{
	struct nvmf_mdns_record *copy = calloc(n + 1, sizeof(*records)); /* none, too, is not NULL */

	if (copy == NULL) {
		return -ENOMEM;
	}
	if (n > 0) {
		memcpy(copy, records, n * sizeof(*records));
	}
	pthread_mutex_lock(&s->mutex);
	struct nvmf_mdns_record *old = s->wanted;
	s->wanted = copy;
	s->n_wanted = n;
	pthread_mutex_unlock(&s->mutex);
	free(old);
	session_wake(s);
	return 0;
}

void nvmf_mdns_session_end(struct nvmf_mdns_session *s)
{
	pthread_mutex_lock(&s->mutex);
	s->ending = true;
	pthread_mutex_unlock(&s->mutex);
	session_wake(s);
	session_release(s);
}
