/* SPDX-License-Identifier: BSD-3-Clause */
/* For X-macro files whose lines have a varying number of arguments: FOR_ARGS(m, c, (a, b), (d, e), ...) is
 * m(c, a, b) m(c, d, e) ... for 0 to 8 tuples. */
#ifndef UTIL_FOR_ARGS_H
#define UTIL_FOR_ARGS_H

/* clang-format off */
#define FOR_ARGS(m_, c_, ...)                                                                                \
	FOR_ARGS_PICK(0, ##__VA_ARGS__, FOR_ARGS_8, FOR_ARGS_7, FOR_ARGS_6, FOR_ARGS_5, FOR_ARGS_4,          \
		      FOR_ARGS_3, FOR_ARGS_2, FOR_ARGS_1, FOR_ARGS_0)                                        \
	(m_, c_, ##__VA_ARGS__)
#define FOR_ARGS_PICK(z_, a1_, a2_, a3_, a4_, a5_, a6_, a7_, a8_, pick_, ...) pick_
#define FOR_ARGS_UNTUPLE(...)					              __VA_ARGS__
#define FOR_ARGS_CALL(m_, ...)					              m_(__VA_ARGS__)
#define FOR_ARGS_0(m_, c_)
#define FOR_ARGS_1(m_, c_, t_)      FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_)
#define FOR_ARGS_2(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_1(m_, c_, __VA_ARGS__)
#define FOR_ARGS_3(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_2(m_, c_, __VA_ARGS__)
#define FOR_ARGS_4(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_3(m_, c_, __VA_ARGS__)
#define FOR_ARGS_5(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_4(m_, c_, __VA_ARGS__)
#define FOR_ARGS_6(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_5(m_, c_, __VA_ARGS__)
#define FOR_ARGS_7(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_6(m_, c_, __VA_ARGS__)
#define FOR_ARGS_8(m_, c_, t_, ...) FOR_ARGS_CALL(m_, c_, FOR_ARGS_UNTUPLE t_) FOR_ARGS_7(m_, c_, __VA_ARGS__)
/* clang-format on */

#endif
