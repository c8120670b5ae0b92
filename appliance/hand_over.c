/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/hand_over.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "appliance/app.h"
#include "appliance/hand_over_caller.h"
#include "appliance/hand_over_config.h"
#include "appliance/hand_over_keys.h"
#include "appliance/hand_over_losses.h"
#include "appliance/hand_over_resv.h"
#include "appliance/parts.h"
#include "appliance/rooms.h"
#include "appliance/service.h"
#include "appliance/signals.h"
#include "appliance/takeover.h"
#include "bdev/kept_ram.h"
#include "bdev/kept_stat.h"
#include "bdev/module.h"
#include "nvmf/resv_kept.h"
#include "rpc/stream.h"
#include "rpc/dispatch.h"
#include "thread/thread.h"
#include "util/secret.h"

#define CALLS_WAIT_US 10000000 /* how long calls that are under way may take to end */
#define GRACE_US      1000000  /* at the end of its time, what the successor has said is read before it is killed */

static struct hand_over {
	bool active;
	int fd;    /* of the connection to the successor */
	int pidfd; /* of the successor */
	pid_t pid;
	uint64_t timeout_us;
	struct rpc_stream_in in;
	char *config; /* the text of what is handed over */
	json_t *keys; /* what tells whether the successor reads the same ones */
	char *out;    /* what is to be sent */
	size_t out_len, out_sent;
	struct fd_source *source, *exit_source;
	uint32_t events;
	struct thread_timer timer;
	bool force;     /* even if something is lost */
	bool ram;       /* the successor takes RAM disks over */
	size_t num_ram; /* how many there are */
	bool given;     /* this process serves nothing any more, and the successor has been told so */
	bool grace;     /* the time is over, and the grace is running */
	bool serves;    /* the successor has said so */
	bool stop_told; /* a signal has asked this process to stop, and the successor has been told to */
	bool gone;      /* the successor has ended */
	bool killed; /* it ends: what it says from now on does not count, though it may be read before its end is seen
		      */
} ho = {.fd = -1, .pidfd = -1};

/* ---- What is said ---- */

static void hand_over_watch(uint32_t events)
{
	if (ho.source != NULL && events != ho.events) {
		ho.events = events;
		fd_source_modify(ho.source, events);
	}
}

/* Sends as much as the socket takes. */
static void hand_over_send(void)
{
	while (ho.out_sent < ho.out_len) {
		ssize_t n = send(ho.fd, ho.out + ho.out_sent, ho.out_len - ho.out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 && errno != EAGAIN) {
			ho.out_len = 0; /* nobody listens: the end of the process is waited for */
		}
		if (n <= 0) {
			break;
		}
		ho.out_sent += (size_t)n;
	}
	hand_over_watch(ho.out_sent < ho.out_len ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* The file of RAM disks, beside a space, which is nothing between messages. */
static bool hand_over_send_file(int file)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t) " ", .iov_len = 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &file, sizeof(file));
	return sendmsg(ho.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* message is consumed; NULL: no memory. False: it cannot be sent. */
static bool hand_over_say(json_t *message)
{
	char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;

	json_decref(message);
	secret_wipe_free(ho.out);
	ho.out = text;
	ho.out_len = text != NULL ? strlen(text) : 0;
	ho.out_sent = 0;
	hand_over_send();
	return text != NULL;
}

static void hand_over_hear_message(json_t *message)
{
	if (!ho.killed && json_is_true(json_object_get(message, "serving"))) {
		ho.serves = true;
	}
	json_decref(message);
}

/* The end of the connection, or of what can be understood: only the end of the process counts from now on. */
static void hand_over_deafen(void)
{
	if (ho.source != NULL) {
		fd_source_remove(&ho.source);
	}
}

static void hand_over_hear(void)
{
	char bytes[256];
	json_t *message;
	ssize_t n = recv(ho.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	int rc = n > 0 ? rpc_stream_in_add(&ho.in, bytes, (size_t)n) : -EPIPE;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	while (rc == 0 && (rc = rpc_stream_in_take(&ho.in, &message)) == 0) {
		hand_over_hear_message(message);
	}
	if (rc != -EAGAIN) {
		hand_over_deafen();
	}
}

static void hand_over_event(void *arg, uint32_t events)
{
	if ((events & EPOLLOUT) != 0) {
		hand_over_send();
	}
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
		hand_over_hear();
	}
}

static void hand_over_exited(void *arg, uint32_t events)
{
	ho.gone = true;
	fd_source_remove(&ho.exit_source);
}

/* After what the successor has said up to now was heard. */
static void hand_over_kill(void)
{
	if (ho.given) {
		log_error("process %d, which is taking over, neither serves nor has ended after %" PRIu64
			  " s: it is killed",
			  ho.pid, ho.timeout_us / 1000000);
	} else {
		log_error("this process has not stopped serving after %" PRIu64
			  " s, so process %d cannot take over: it is killed, and this process goes on when all is "
			  "stopped",
			  ho.timeout_us / 1000000, ho.pid);
	}
	ho.killed = pidfd_send_signal(ho.pidfd, SIGKILL, NULL, 0) == 0 || errno == ESRCH;
	if (!ho.killed) {
		log_error("process %d cannot be killed: %s; nothing is served until it has ended", ho.pid,
			  strerror(errno));
	}
}

static void hand_over_time_is_over(void *arg)
{
	if (!ho.grace) {
		ho.grace = true;
		thread_timer_start(&ho.timer, GRACE_US);
		return;
	}
	if (ho.source != NULL) {
		hand_over_hear();
	}
	if (!ho.serves && !ho.gone) {
		hand_over_kill();
	}
}

/* ---- The course ---- */

static void hand_over_end(void)
{
	hand_over_deafen();
	if (ho.exit_source != NULL) {
		fd_source_remove(&ho.exit_source);
	}
	thread_timer_stop(&ho.timer);
	rpc_stream_in_free(&ho.in);
	secret_wipe_free(ho.config);
	json_decref(ho.keys);
	secret_wipe_free(ho.out);
	close(ho.fd);
	close(ho.pidfd);
	ho = (struct hand_over){.fd = -1, .pidfd = -1};
}

static void hand_over_note_call(void *arg, const struct rpc_call_info *info)
{
	const char **method = arg;

	*method = *method != NULL ? *method : info->method;
}

static bool hand_over_no_calls(void *arg)
{
	return rpc_outstanding() == 0 || ho.gone || signals_stop_requested() != 0;
}

/* NULL, or why nothing can be handed over. */
static const char *hand_over_settle(char why[HAND_OVER_LOSSES_MAX])
{
	const char *method = NULL;

	rpc_set_state(RPC_HANDING_OVER);
	thread_control_wait(hand_over_no_calls, NULL, CALLS_WAIT_US);
	if (ho.gone) {
		return "it has ended";
	}
	if (signals_stop_requested() != 0) {
		return "this process stops";
	}
	if (rpc_outstanding() != 0) {
		rpc_for_each_call(hand_over_note_call, &method);
		snprintf(why, HAND_OVER_LOSSES_MAX, "a call of %s has not ended within %d s (rpc_get_calls)", method,
			 CALLS_WAIT_US / 1000000);
		return why;
	}
	for (const struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		ho.num_ram += b->in_memory;
	}
	json_t *config = hand_over_config();
	ho.config = config != NULL ? json_dumps(config, JSON_COMPACT) : NULL;
	json_decref(config);
	if (ho.config == NULL) {
		return "no memory for the configuration";
	}
	/* Before the files are looked at for the last time: those that change afterwards are another key to the
	 * successor. */
	ho.keys = hand_over_keys_export(ho.force);
	if (ho.keys == NULL) {
		return "no memory for the digests of keys";
	}
	/* Once more: of what was done since the call was judged, by calls that were under way and by hosts. */
	return hand_over_spoils_data(ho.ram, why) || (!ho.force && hand_over_losses(ho.ram, why)) ? why : NULL;
}

/* What may fail is done before anything is given up. NULL, or why nothing can be handed over. */
static const char *hand_over_keep_configuration(void)
{
	char error[PART_ERROR_MAX];

	if (rooms_keep_configuration(ho.config, strlen(ho.config), error) == 0) {
		return NULL;
	}
	log_error("%s", error);
	return "the configuration could not be loaded again if it failed";
}

bool hand_over_prepare(void)
{
	char why[HAND_OVER_LOSSES_MAX];
	const char *wrong = hand_over_settle(why);

	wrong = wrong == NULL ? hand_over_keep_configuration() : wrong;
	if (wrong == NULL) {
		return true;
	}
	log_error("process %d does not take over: %s", ho.pid, wrong);
	hand_over_say(json_pack("{s:s}", "error", wrong));
	hand_over_end();
	rpc_set_state(RPC_RUNTIME);
	return false;
}

static bool hand_over_is_decided(void *arg)
{
	return ho.serves || ho.gone || (signals_stop_requested() != 0 && !ho.stop_told);
}

static bool hand_over_is_sent(void *arg)
{
	return ho.out_sent >= ho.out_len || ho.gone;
}

/* Statistics are not worth the attempt. */
static void hand_over_warn_of_statistics(void)
{
	if (kept_stat_failed() != 0) {
		log_warning("no memory to keep the statistics of %u objects: they begin anew", kept_stat_failed());
	}
}

/* RAM disks, for the message; NULL: they cannot be handed over, or not all. */
static json_t *hand_over_give_ram(void)
{
	json_t *all = ho.ram ? kept_ram_export() : json_array();

	if (ho.ram &&
	    (json_array_size(all) < ho.num_ram || (kept_ram_fd() >= 0 && !hand_over_send_file(kept_ram_fd())))) {
		json_decref(all);
		return NULL;
	}
	return all;
}

/* Sends the configuration, and reservations, statistics and RAM disks as they were at the end. */
static void hand_over_give(void)
{
	json_error_t wrong;
	uint64_t watchdog_us;
	const char *path = service_path(&watchdog_us);
	json_t *message = json_object();

	json_object_set_new(message, "handed_over", json_loads(ho.config, 0, &wrong));
	json_object_set(message, "keys", ho.keys);
	json_object_set_new(message, "reservations", hand_over_resv_export());
	json_object_set_new(message, "statistics", kept_stat_export());
	json_object_set_new(message, "ram_disks", hand_over_give_ram());
	json_object_set_new(message, "notify_socket", rpc_string(path));
	json_object_set_new(message, "watchdog_us", rpc_uint(watchdog_us));
	bool whole = nvmf_resv_kept_whole() == 0 && json_object_get(message, "reservations") != NULL &&
		     json_object_get(message, "keys") != NULL && json_object_get(message, "ram_disks") != NULL;
	ho.given = hand_over_say(whole ? message : NULL);
	if (!whole) {
		json_decref(message);
	}
	if (!ho.given) {
		log_error("no memory to hand over, or the other process does not listen");
		shutdown(ho.fd, SHUT_RDWR); /* the successor ends, and is waited for */
	}
}

/* The successor serves. */
static void hand_over_part(void)
{
	log_notice("process %d has taken over", ho.pid);
	takeover_stop(); /* if this process watches the one before, RAM disks would become its own at that one's end */
	kept_ram_own(false);
	service_hand_over(ho.pid);
	hand_over_say(json_pack("{s:b}", "parted", 1));
	thread_control_wait(hand_over_is_sent, NULL, GRACE_US);
}

/* The successor has ended, or cannot be watched. */
static enum appliance_event hand_over_take_back(void)
{
	log_error("process %d ended without having taken over: this process goes on, with all that it had", ho.pid);
	service_status("another process failed to take over: this one goes on");
	hand_over_config_expect(ho.config);
	ho.config = NULL;
	rooms_take_back();
	return APPLIANCE_ERROR;
}

/* A signal asked for the end before anything was given: the successor gets nothing, and ends. */
static enum appliance_event hand_over_withdraw(void)
{
	log_notice("process %d does not take over: this process stops", ho.pid);
	hand_over_say(json_pack("{s:s}", "error", "that process stops"));
	return APPLIANCE_STOP;
}

/* A signal asked for the end when all was given: whoever wants varve to stop does not want another one to serve. */
static void hand_over_pass_stop(void)
{
	log_notice("this process is to stop: so is process %d, which is taking over", ho.pid);
	ho.stop_told = true;
	if (pidfd_send_signal(ho.pidfd, SIGTERM, NULL, 0) != 0 && errno != ESRCH) {
		log_error("process %d cannot be told: %s", ho.pid, strerror(errno));
	}
}

/* Waits until the successor serves or has ended. */
static void hand_over_wait(void)
{
	while (!ho.serves && !ho.gone) {
		thread_control_wait(hand_over_is_decided, NULL, UINT64_MAX);
		if (signals_stop_requested() != 0 && !ho.stop_told) {
			hand_over_pass_stop();
		}
	}
}

/* What follows from what has become of the successor. */
static enum appliance_event hand_over_conclude(void)
{
	if (ho.serves) {
		hand_over_part();
		return APPLIANCE_DONE;
	}
	return signals_stop_requested() != 0 ? APPLIANCE_STOP : hand_over_take_back();
}

enum appliance_event hand_over_run(void)
{
	enum appliance_event event;

	log_notice("handing over to process %d", ho.pid);
	service_status("handing over to process %d", ho.pid);
	kept_ram_set_mode(ho.ram ? KEPT_RAM_FILE : KEPT_RAM_HERE);
	rooms_hand_over(); /* the RPC server too, which had the connection until now */
	kept_ram_set_mode(KEPT_RAM_NONE);
	hand_over_warn_of_statistics();
	ho.events = EPOLLIN;
	ho.source = fd_source_add(ho.fd, ho.events, hand_over_event, NULL, "hand_over");
	if (signals_stop_requested() != 0) {
		event = hand_over_withdraw();
	} else {
		if (ho.source != NULL) {
			hand_over_give();
		} else {
			log_error("process %d cannot be listened to: %s", ho.pid, strerror(errno));
			shutdown(ho.fd, SHUT_RDWR); /* it ends, and is waited for */
		}
		hand_over_wait();
		event = hand_over_conclude();
	}
	hand_over_end();
	return event;
}

/* ---- The call ---- */

struct hand_over_params {
	int32_t pid;
	bool dry_run, force, ram_disks;
	uint32_t timeout_s;
};

static const struct rpc_param hand_over_params[] = {
	RPC_PARAM(struct hand_over_params, pid, RPC_INT32, RPC_REQUIRED,
		  "of the caller, which is the process that takes over", .min = 1, .max = INT32_MAX),
	RPC_PARAM(struct hand_over_params, dry_run, RPC_BOOL, RPC_OPTIONAL,
		  "only answer with the configuration, or with what stands against it (default false)"),
	RPC_PARAM(struct hand_over_params, force, RPC_BOOL, RPC_OPTIONAL,
		  "even if something is lost, or takes long (default false)"),
	RPC_PARAM(struct hand_over_params, ram_disks, RPC_BOOL, RPC_OPTIONAL,
		  "the caller takes over what is on RAM disks; otherwise that would be lost (default false)"),
	RPC_PARAM(struct hand_over_params, timeout_s, RPC_UINT32, RPC_OPTIONAL,
		  "after so many seconds the caller is killed, unless it serves, and this process goes on (default 60)",
		  .min = 1, .max = APPLIANCE_TAKEOVER_MAX_S),
	RPC_PARAM_END,
};

static void hand_over_defaults(void *params)
{
	((struct hand_over_params *)params)->timeout_s = APPLIANCE_TAKEOVER_DEFAULT_S;
}

/* Begins. 0; or a negative errno, and why. */
static int hand_over_begin(int fd, const struct hand_over_params *p, char why[HAND_OVER_CALLER_ERROR_MAX])
{
	uint64_t watchdog_us;
	bool service = service_path(&watchdog_us) != NULL;
	int pidfd, rc = hand_over_caller_open(fd, p->pid, service, p->force, &pidfd, why);

	if (rc != 0) {
		return rc;
	}
	ho.timer = (struct thread_timer){.fn = hand_over_time_is_over};
	ho.exit_source = fd_source_add(pidfd, EPOLLIN, hand_over_exited, NULL, "successor");
	if (ho.exit_source == NULL) {
		snprintf(why, HAND_OVER_CALLER_ERROR_MAX, "process %d cannot be watched: %s", p->pid, strerror(errno));
		close(pidfd);
		return -ENOMEM;
	}
	ho.fd = fd;
	ho.pidfd = pidfd;
	ho.pid = p->pid;
	ho.timeout_us = (uint64_t)p->timeout_s * 1000000;
	ho.force = p->force;
	ho.ram = p->ram_disks;
	ho.active = true;
	thread_timer_start(&ho.timer, ho.timeout_us);
	return 0;
}

/* Whether something stands against it; the call has been answered then. */
static bool hand_over_is_refused(struct rpc_request *req, const struct hand_over_params *p)
{
	char losses[HAND_OVER_LOSSES_MAX];

	if (ho.active) {
		rpc_error(req, -EBUSY, "process %d is taking over already", ho.pid);
		return true;
	}
	if (hand_over_spoils_data(p->ram_disks, losses)) {
		rpc_error(req, -EPERM, "%s", losses);
		return true;
	}
	if (!p->force && hand_over_losses(p->ram_disks, losses)) {
		rpc_error(req, -EPERM, "%s; force (--takeover-force) does it all the same", losses);
		return true;
	}
	return false;
}

static void rpc_framework_hand_over(struct rpc_request *req, void *params)
{
	const struct hand_over_params *p = params;
	char why[HAND_OVER_CALLER_ERROR_MAX];

	if (hand_over_is_refused(req, p)) {
		return;
	}
	if (p->dry_run) {
		rpc_reply(req, hand_over_config());
		return;
	}
	int fd = rpc_request_dup_connection(req);
	if (fd < 0) {
		rpc_error(req, fd, "the connection of the call cannot be kept: %s", strerror(-fd));
		return;
	}
	int rc = hand_over_begin(fd, p, why);
	if (rc != 0) {
		close(fd);
		rpc_error(req, rc, "%s", why);
		return;
	}
	rpc_reply_true(req);
	app_hand_over();
}
RPC_METHOD(
	"framework_hand_over", rpc_framework_hand_over, struct hand_over_params, hand_over_params, RPC_RUNTIME,
	"Let the calling process take over: end all I/O, give up all bdevs, addresses and the RPC socket, and end when "
	"the caller serves them; go on if it fails. For varve --takeover",
	.defaults = hand_over_defaults, .result = "true|{subsystems: [any]}")
