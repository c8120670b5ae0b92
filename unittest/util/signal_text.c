/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/signal_text.h"

#include <signal.h>

#include "unittest/unit.h"

static void test_signals_have_names(void)
{
	CU_ASSERT_STRING_EQUAL(signal_text_name(SIGSEGV), "SIGSEGV");
	CU_ASSERT_STRING_EQUAL(signal_text_name(SIGABRT), "SIGABRT");
	CU_ASSERT_PTR_NULL(signal_text_name(SIGUSR1));
	CU_ASSERT_PTR_NULL(signal_text_name(0));
}

static void test_a_signal_that_was_sent_is_no_fault(void)
{
	const int sent[] = {SI_USER, SI_QUEUE, SI_TKILL};

	for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
		CU_ASSERT_TRUE(signal_text_is_sent(sent[i]));
		CU_ASSERT_FALSE(signal_text_has_address(SIGSEGV, sent[i]));
	}
	/* a timer has no sender, and no address either */
	CU_ASSERT_FALSE(signal_text_is_sent(SI_TIMER));
	CU_ASSERT_FALSE(signal_text_has_address(SIGSEGV, SI_TIMER));
}

static void test_a_fault_has_an_address_if_the_kernel_knows_it(void)
{
	const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		CU_ASSERT_FALSE(signal_text_is_sent(1));
		CU_ASSERT_TRUE(signal_text_has_address(signals[i], 1));
		CU_ASSERT_FALSE(signal_text_has_address(signals[i], SI_KERNEL));
		CU_ASSERT_PTR_NOT_NULL(signal_text_fault(signals[i], 1));
	}
	CU_ASSERT_FALSE(signal_text_has_address(SIGABRT, 1));
	CU_ASSERT_STRING_EQUAL(signal_text_fault(SIGSEGV, SEGV_MAPERR), "not mapped");
	CU_ASSERT_PTR_NULL(signal_text_fault(SIGSEGV, SI_USER));
	CU_ASSERT_PTR_NULL(signal_text_fault(SIGSEGV, 12345));
}

static const struct unit_test tests[] = {
	UNIT(test_signals_have_names),
	UNIT(test_a_signal_that_was_sent_is_no_fault),
	UNIT(test_a_fault_has_an_address_if_the_kernel_knows_it),
	UNIT_END,
};
UNIT_MAIN("signal_text", tests, NULL, NULL)
