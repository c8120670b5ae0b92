/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a device is known to differ from the InfiniBand specification: the test is skipped there and says
 * why. The section "Where rdma_rxe differs" of doc/softverbs.md lists the same. */
#include "unittest/softverbs/sides.h"

#define RXE_LKEY "rxe reports a wrong lkey as a local QP operation error"
#define RXE_LENGTH                                                                                                     \
	"rxe reports a short receive as a local QP operation error, and a remote operation error to the "              \
	"sender"
#define RXE_EVENTS "rxe tells of such errors only where the queue pair has a shared receive queue"
#define RXE_RANGE  "rxe does not look at this value"

static const struct {
	const char *device; /* the name's beginning */
	const char *test;
	const char *why;
} known[] = {
	{"rxe", "test_longer_message_than_the_port_allows_is_an_error", "rxe does not look at max_msg_sz"},
	{"rxe", "test_send_with_a_bad_lkey_is_a_local_protection_error", RXE_LKEY},
	{"rxe", "test_write_with_a_bad_lkey_is_a_local_protection_error", RXE_LKEY},
	{"rxe", "test_lkey_of_another_protection_domain_is_a_local_protection_error", RXE_LKEY},
	{"rxe", "test_receive_with_a_bad_lkey_is_a_local_protection_error_there", RXE_LKEY},
	{"rxe", "test_receive_into_a_region_without_local_write_is_a_local_protection_error_there", RXE_LKEY},
	{"rxe", "test_receive_beyond_the_region_is_a_local_protection_error_there", RXE_LKEY},
	{"rxe", "test_send_longer_than_the_receive_is_a_local_length_error_there", RXE_LENGTH},
	{"rxe", "test_long_send_longer_than_the_receive_is_a_local_length_error_there", RXE_LENGTH},
	{"rxe", "test_read_with_no_initiator_depth_is_a_local_qp_operation_error", "rxe lets the read wait for ever"},
	{"rxe", "test_write_with_immediate_and_a_bad_rkey_is_a_remote_access_error",
	 "rxe completes the receive with a remote access error; no receive is touched by a request that is "
	 "refused"},
	{"rxe", "test_remote_access_error_is_an_event_there", RXE_EVENTS},
	{"rxe", "test_invalid_request_is_an_event_there", RXE_EVENTS},
	{"rxe", "test_work_posted_in_the_error_state_is_flushed",
	 "rxe does not flush receives posted in the error state"},
	{"rxe", "test_value_out_of_range_is_refused: pkey index 60000", RXE_RANGE},
	{"rxe", "test_value_out_of_range_is_refused: mtu 0", RXE_RANGE},
	{"rxe", "test_value_out_of_range_is_refused: responder resources 255", RXE_RANGE},
	{"rxe", "test_value_out_of_range_is_refused: rnr timer 32", RXE_RANGE},
	{"rxe", "test_value_out_of_range_is_refused: retry count 8", RXE_RANGE},
	{"rxe", "test_value_out_of_range_is_refused: rnr retry 8", RXE_RANGE},
	{"rxe", "test_drained_send_queue_goes_on_after_rts", "rxe goes on only when the next request is posted"},
	{"rxe", "test_messages_that_nobody_polled_give_their_room_back_with_the_queue_pair",
	 "rxe leaves the completions of a queue pair that is gone in the completion queue"},
	{"rxe", "test_last_work_reached_is_an_event",
	 "rxe tells of it only when an error, not the program, ended the queue pair"},
	{"rxe", "the flag IBV_WC_WITH_INV", "rxe does not tell programs which key was invalidated"},
	{"rxe", "test_write_one_byte_beyond_the_window_is_a_remote_access_error",
	 "rxe checks the bounds of the window's region, not of the window"},
	{"rxe", "test_peer_dies_while_we_sleep_on_the_completion_channel_with_a_send_outstanding",
	 "no difference, but the retries last over half a minute with the timeout that rdma_cm takes for "
	 "rxe"},
	{"rxe", "test_error_state_completes_all_that_threads_have_posted",
	 "rxe was seen to lose a request that was posted while the queue pair went into the error state"},
	{NULL, NULL, NULL},
};

const char *known_difference(const char *test)
{
	for (size_t i = 0; known[i].device != NULL; i++) {
		if (strcmp(known[i].test, test) == 0 && sides_device_is(known[i].device)) {
			return known[i].why;
		}
	}
	return NULL;
}
