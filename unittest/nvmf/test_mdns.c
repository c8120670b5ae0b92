/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast DNS: the records, and what a session does with libavahi-client, whose functions are the test's own here. */
#include "unittest/nvmf/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdatomic.h>

#include "nvmf/mdns_internal.h"
#include "nvmf/mdns_library.h"

/* ---- Records ---- */

static struct nvmf_address address(const char *trtype, const char *traddr, const char *trsvcid)
{
	struct nvmf_address a = {.adrfam = strchr(traddr, ':') != NULL ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4};

	snprintf(a.trtype, sizeof(a.trtype), "%s", trtype);
	snprintf(a.traddr, sizeof(a.traddr), "%s", traddr);
	snprintf(a.trsvcid, sizeof(a.trsvcid), "%s", trsvcid);
	return a;
}

static void test_a_record_has_the_port_and_a_name_that_fits(void)
{
	struct nvmf_address a = address("tcp", "192.0.2.7", "8009");
	struct nvmf_mdns_record r;

	CU_ASSERT_EQUAL(nvmf_mdns_record_make(&a, "node", 3, &r), 0);
	CU_ASSERT_STRING_EQUAL(r.name, "varve node 192.0.2.7:8009");
	CU_ASSERT(r.port == 8009 && r.interface == 3 && !r.ipv6);
	a = address("TCP", "2001:0db8:1111:2222:3333:4444:5555:6666", "65535");
	CU_ASSERT_EQUAL(nvmf_mdns_record_make(&a, "a-host-whose-name-is-longer-than-a-name-can-be.example.org", 0, &r),
			0);
	CU_ASSERT_STRING_EQUAL(r.name, "varve a-host-whos 2001:0db8:1111:2222:3333:4444:5555:6666:65535");
	CU_ASSERT(strlen(r.name) <= NVMF_MDNS_NAME_MAX && r.ipv6 && r.port == 65535);
	a = address("TCP", "192.0.2.7", "1");
	CU_ASSERT_EQUAL(nvmf_mdns_record_make(&a, "n\xff\n\x7f", 0, &r), 0);
	CU_ASSERT_STRING_EQUAL(r.name, "varve n--- 192.0.2.7:1");
	a = address("RDMA", "192.0.2.7", "4420");
	CU_ASSERT_EQUAL(nvmf_mdns_record_make(&a, "node", 0, &r), -EPROTONOSUPPORT);
}

static void test_addresses_are_told_on_the_interface_that_has_them(void)
{
	struct nvmf_address a = address("TCP", "0.0.0.0", "1");
	struct ifaddrs *all = NULL;
	char text[INET6_ADDRSTRLEN];

	CU_ASSERT_EQUAL(nvmf_mdns_interface_of(&a), 0);
	a = address("TCP", "::", "1");
	CU_ASSERT_EQUAL(nvmf_mdns_interface_of(&a), 0);
	a = address("TCP", "127.0.0.1", "1");
	CU_ASSERT_EQUAL(nvmf_mdns_interface_of(&a), -ENODEV);
	a = address("TCP", "192.0.2.77", "1");
	CU_ASSERT_EQUAL(nvmf_mdns_interface_of(&a), -ENODEV);
	a = address("TCP", "nowhere", "1");
	CU_ASSERT_EQUAL(nvmf_mdns_interface_of(&a), -ENODEV);
	CU_ASSERT_EQUAL_FATAL(getifaddrs(&all), 0);
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK)) {
			continue;
		}
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, text,
			  sizeof(text));
		a = address("TCP", text, "1");
		CU_ASSERT(nvmf_mdns_interface_of(&a) > 0);
	}
	freeifaddrs(all);
}

/* ---- The library ---- */

struct AvahiEntryGroup {
	AvahiEntryGroupCallback fn;
	void *arg;
	bool has_service, is_committed, is_up;
};
struct AvahiWatch {
	int fd;
	AvahiWatchCallback fn;
	void *arg;
};

static struct {
	AvahiClientCallback client_fn;
	void *client_arg;
	struct AvahiWatch watch;
	struct AvahiEntryGroup groups[64];
	_Atomic unsigned n_groups, n_freed, n_clients, n_names;
	_Atomic int n_up;              /* groups that are established */
	_Atomic unsigned n_threads;    /* between their first and last calls of the library */
	char name[128];                /* of the service that was added last */
	int collisions;                /* so many names that come next are taken on this machine, ... */
	_Atomic int remote_collisions; /* ... on another one */
	_Atomic int refusal;           /* what adding a service returns, if not 0 */
	_Atomic bool is_held;          /* adding a service does not return until it is false */
	_Atomic bool commit_fails;
	_Atomic bool client_goes, group_goes; /* avahi-daemon gives up the client, or its last group; then false */
} lib;

static AvahiClient *fake_client_new(const AvahiPoll *poll, AvahiClientFlags flags, AvahiClientCallback fn, void *arg,
				    int *error)
{
	lib.client_fn = fn;
	lib.client_arg = arg;
	lib.n_clients++;
	fn((AvahiClient *)&lib, AVAHI_CLIENT_S_RUNNING, arg);
	return (AvahiClient *)&lib;
}

static void fake_client_free(AvahiClient *c) /* its groups go with it */
{
	for (unsigned i = 0; i < 64; i++) {
		lib.groups[i].is_up = false;
	}
	lib.n_up = 0;
}

static int fake_client_errno(AvahiClient *c)
{
	return AVAHI_ERR_NO_MEMORY;
}

static AvahiEntryGroup *fake_group_new(AvahiClient *c, AvahiEntryGroupCallback fn, void *arg)
{
	struct AvahiEntryGroup *g = &lib.groups[lib.n_groups % 64];

	lib.n_groups++;
	*g = (struct AvahiEntryGroup){.fn = fn, .arg = arg};
	return g;
}

static int fake_group_free(AvahiEntryGroup *g)
{
	lib.n_freed++;
	lib.n_up -= g->is_up;
	g->is_up = false;
	g->fn = NULL;
	return 0;
}

static int fake_add(AvahiEntryGroup *g, AvahiIfIndex interface, AvahiProtocol protocol, AvahiPublishFlags flags,
		    const char *name, const char *type, const char *domain, const char *host, uint16_t port,
		    AvahiStringList *txt)
{
	while (lib.is_held) {
		poll(NULL, 0, 1);
	}
	snprintf(lib.name, sizeof(lib.name), "%s", name);
	if (lib.refusal != 0) {
		return lib.refusal;
	}
	if (lib.collisions > 0) {
		lib.collisions--;
		return AVAHI_ERR_COLLISION;
	}
	g->has_service = true;
	return 0;
}

static int fake_commit(AvahiEntryGroup *g)
{
	g->is_committed = g->has_service;
	if (lib.commit_fails) {
		g->fn(g, AVAHI_ENTRY_GROUP_FAILURE, g->arg);
	} else if (lib.remote_collisions > 0) {
		lib.remote_collisions--;
		g->fn(g, AVAHI_ENTRY_GROUP_COLLISION, g->arg);
	} else {
		g->is_up = true;
		lib.n_up++;
		g->fn(g, AVAHI_ENTRY_GROUP_ESTABLISHED, g->arg);
	}
	return 0;
}

static AvahiWatch *fake_watch_new(const AvahiPoll *api, int fd, AvahiWatchEvent event, AvahiWatchCallback fn, void *arg)
{
	lib.watch = (struct AvahiWatch){.fd = fd, .fn = fn, .arg = arg};
	return &lib.watch;
}

static void fake_watch_free(AvahiWatch *w)
{
}

static const AvahiPoll fake_api = {.watch_new = fake_watch_new, .watch_free = fake_watch_free};

static AvahiSimplePoll *fake_poll_new(void)
{
	lib.n_threads++;
	return (AvahiSimplePoll *)&lib;
}

static void fake_poll_free(AvahiSimplePoll *p)
{
	lib.n_threads--;
}

static const AvahiPoll *fake_poll_get(AvahiSimplePoll *p)
{
	return &fake_api;
}

static int fake_iterate(AvahiSimplePoll *p, int timeout_ms)
{
	struct pollfd fd = {.fd = lib.watch.fd, .events = POLLIN};

	if (poll(&fd, 1, timeout_ms < 0 || timeout_ms > 10 ? 10 : timeout_ms) > 0) {
		lib.watch.fn(&lib.watch, lib.watch.fd, AVAHI_WATCH_IN, lib.watch.arg);
	}
	if (lib.group_goes) {
		struct AvahiEntryGroup *g = &lib.groups[(lib.n_groups - 1) % 64];
		lib.group_goes = false;
		g->fn(g, AVAHI_ENTRY_GROUP_FAILURE, g->arg);
	}
	if (lib.client_goes) {
		lib.client_goes = false;
		lib.client_fn((AvahiClient *)&lib, AVAHI_CLIENT_FAILURE, lib.client_arg);
	}
	return 0;
}

static char *fake_alternative(const char *name)
{
	char *text = malloc(128);

	snprintf(text, 128, "%.50s #%u", name, ++lib.n_names);
	return text;
}

static AvahiStringList *fake_list(const char *text, ...)
{
	return (AvahiStringList *)&lib;
}

static void fake_list_free(AvahiStringList *l)
{
}

static const char *fake_strerror(int error)
{
	return "a reason";
}

static int setup(void)
{
	nvmf_mdns_avahi = (struct nvmf_mdns_library){
		.avahi_client_new = fake_client_new,
		.avahi_client_free = fake_client_free,
		.avahi_client_errno = fake_client_errno,
		.avahi_entry_group_new = fake_group_new,
		.avahi_entry_group_free = fake_group_free,
		.avahi_entry_group_add_service_strlst = fake_add,
		.avahi_entry_group_commit = fake_commit,
		.avahi_simple_poll_new = fake_poll_new,
		.avahi_simple_poll_free = fake_poll_free,
		.avahi_simple_poll_get = fake_poll_get,
		.avahi_simple_poll_iterate = fake_iterate,
		.avahi_alternative_service_name = fake_alternative,
		.avahi_string_list_new = fake_list,
		.avahi_string_list_free = fake_list_free,
		.avahi_strerror = fake_strerror,
		.avahi_free = free,
	};
	return loop_start();
}

/* ---- Sessions ---- */

static const struct nvmf_mdns_record one[] = {{.name = "one", .port = 1}},
				     two[] = {{.name = "one", .port = 1}, {.name = "two", .port = 2}};
static struct {
	unsigned n;
	int rc;
	char why[NVMF_ERROR_MAX];
} told;

static void tell(void *arg, int rc, const char *why)
{
	told.n++;
	told.rc = rc;
	snprintf(told.why, sizeof(told.why), "%s", why);
}

static bool is_never(void *arg)
{
	return false;
}

/* The session's thread changes what is waited for, and does not wake this one: it looks each millisecond. */
static void wait_until(bool (*is_so)(void *arg), void *arg)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(60000000);

	while (!is_so(arg) && env_ticks() < deadline) {
		thread_control_wait(is_never, NULL, 1000);
	}
}

static bool is_told(void *arg)
{
	return told.n > 0;
}

static struct nvmf_mdns_session *start(const struct nvmf_mdns_record *records, size_t n)
{
	struct nvmf_mdns_session *s = NULL;

	memset(&told, 0, sizeof(told));
	lib.n_groups = lib.n_freed = lib.n_clients = lib.n_names = 0;
	CU_ASSERT_EQUAL_FATAL(nvmf_mdns_session_start(records, n, tell, NULL, &s), 0);
	return s;
}

static bool is_nobody_there(void *arg)
{
	return lib.n_threads == 0;
}

/* The session's thread may still be in the library, and has to leave it before the next session begins. */
static void end(struct nvmf_mdns_session *s)
{
	nvmf_mdns_session_end(s);
	lib.is_held = false;
	wait_until(is_nobody_there, NULL);
	CU_ASSERT_EQUAL(lib.n_threads, 0);
}

static void wait_told(int rc)
{
	wait_until(is_told, NULL);
	CU_ASSERT(told.n == 1 && told.rc == rc);
}

static bool is_reached(void *counter)
{
	unsigned *want = counter;

	return lib.n_groups >= want[0] && lib.n_freed >= want[1];
}

static void wait_reached(unsigned made, unsigned freed)
{
	unsigned want[] = {made, freed};

	wait_until(is_reached, want);
	CU_ASSERT_TRUE(is_reached(want));
}

static void wait_groups(unsigned made, unsigned freed)
{
	wait_reached(made, freed);
	CU_ASSERT_EQUAL(lib.n_groups, made);
	CU_ASSERT_EQUAL(lib.n_freed, freed);
}

static bool is_two_up(void *arg)
{
	return lib.n_up == 2;
}

static void test_records_that_come_and_go_leave_the_others_alone(void)
{
	struct nvmf_mdns_session *s = start(one, 1);

	wait_told(0);
	wait_groups(1, 0);
	CU_ASSERT_EQUAL(nvmf_mdns_session_update(s, two, 2), 0);
	wait_groups(2, 0);
	CU_ASSERT_EQUAL(nvmf_mdns_session_update(s, &two[1], 1), 0);
	wait_groups(2, 1);
	CU_ASSERT_EQUAL(nvmf_mdns_session_update(s, NULL, 0), 0);
	wait_groups(2, 2);
	CU_ASSERT_EQUAL(nvmf_mdns_session_update(s, one, 1), 0);
	wait_groups(3, 2);
	CU_ASSERT_EQUAL(told.n, 1);
	end(s);
}

static void test_names_that_others_have_are_changed(void)
{
	lib.collisions = 2;
	struct nvmf_mdns_session *s = start(one, 1);
	wait_told(0);
	CU_ASSERT_STRING_EQUAL(lib.name, "one #1 #2");
	end(s);
	lib.remote_collisions = 1;
	s = start(one, 1);
	wait_told(0);
	CU_ASSERT_STRING_EQUAL(lib.name, "one #1");
	wait_groups(2, 1);
	end(s);
}

static void test_names_without_end_are_given_up(void)
{
	lib.remote_collisions = 100000;
	struct nvmf_mdns_session *s = start(one, 1);
	wait_told(-EADDRINUSE);
	CU_ASSERT_PTR_NOT_NULL(strstr(told.why, "\"one\""));
	lib.remote_collisions = 0;
	end(s);
	lib.collisions = 100000;
	s = start(one, 1);
	wait_told(-EIO);
	lib.collisions = 0;
	end(s);
}

static void test_a_refusal_is_told(void)
{
	lib.refusal = AVAHI_ERR_NOT_PERMITTED;
	struct nvmf_mdns_session *s = start(one, 1);
	wait_told(-EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(told.why, "refuses \"one\": a reason"));
	lib.refusal = 0;
	end(s);
}

static void test_records_come_again_with_a_new_client(void)
{
	struct nvmf_mdns_session *s = start(two, 2);

	wait_told(0);
	wait_groups(2, 0);
	lib.client_goes = true;
	wait_groups(4, 0);
	CU_ASSERT(lib.n_clients == 2 && told.n == 1);
	end(s);
}

/* One record is published, and the next one is refused, for this reason, before both are. */
static struct nvmf_mdns_session *start_and_refuse_the_second(int refusal)
{
	struct nvmf_mdns_session *s = start(one, 1);

	wait_told(0);
	lib.refusal = refusal;
	CU_ASSERT_EQUAL(nvmf_mdns_session_update(s, two, 2), 0);
	wait_reached(2, 1);
	lib.refusal = 0;
	wait_until(is_two_up, NULL);
	CU_ASSERT_TRUE(is_two_up(NULL));
	return s;
}

static void test_a_record_that_was_refused_is_tried_again(void)
{
	struct nvmf_mdns_session *s = start_and_refuse_the_second(AVAHI_ERR_TOO_MANY_ENTRIES);

	CU_ASSERT_EQUAL(lib.n_clients, 1);
	end(s);
}

static void test_a_bus_that_fails_is_asked_anew(void)
{
	struct nvmf_mdns_session *s = start_and_refuse_the_second(AVAHI_ERR_DBUS_ERROR);

	CU_ASSERT_TRUE(lib.n_clients > 1);
	end(s);
}

static void test_a_record_that_avahi_gives_up_is_told_and_tried_again(void)
{
	struct nvmf_mdns_session *s = start(one, 1);

	wait_told(0);
	wait_groups(1, 0);
	lib.group_goes = true;
	wait_groups(2, 1);
	end(s);
	lib.commit_fails = true;
	s = start(one, 1);
	wait_told(-EIO);
	lib.commit_fails = false;
	end(s);
}

static void test_one_that_hangs_is_ended_without_waiting(void)
{
	lib.is_held = true;
	struct nvmf_mdns_session *s = start(one, 1);
	wait_groups(1, 0);
	CU_ASSERT_EQUAL(nvmf_mdns_session_update(s, two, 2), 0);
	end(s); /* and then lets go of it */
	s = start(two, 2);
	wait_told(0);
	end(s);
}

static const struct unit_test tests[] = {
	UNIT(test_a_record_has_the_port_and_a_name_that_fits),
	UNIT(test_addresses_are_told_on_the_interface_that_has_them),
	UNIT(test_records_that_come_and_go_leave_the_others_alone),
	UNIT(test_names_that_others_have_are_changed),
	UNIT(test_names_without_end_are_given_up),
	UNIT(test_a_refusal_is_told),
	UNIT(test_records_come_again_with_a_new_client),
	UNIT(test_a_record_that_was_refused_is_tried_again),
	UNIT(test_a_bus_that_fails_is_asked_anew),
	UNIT(test_a_record_that_avahi_gives_up_is_told_and_tried_again),
	UNIT(test_one_that_hangs_is_ended_without_waiting),
	UNIT_END,
};
UNIT_MAIN("nvmf_mdns", tests, setup, loop_stop)
