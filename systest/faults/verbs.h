/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SYSTEST_FAULTS_VERBS_H
#define SYSTEST_FAULTS_VERBS_H

/* Puts every queue pair that is not protected into the error state, as a lost connection does. How many there are. */
int faults_break_qps(void);

#endif
