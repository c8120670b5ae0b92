/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/own.h"

#include "unittest/unit.h"

static const char methods[] =
	"[{'name':'make','params':[{'name':'name'},{'name':'x','own':true},{'name':'in','fields':["
	"{'name':'nsid'},{'name':'y','own':true}]}]},{'name':'ours','own':true,'params':[]},{'name':'o_create','own':"
	"true,'params':[]}]";

static json_t *parse(const char *text)
{
	char *copy = strdup(text);

	for (char *c = copy; *c != '\0'; c++) {
		*c = *c == '\'' ? '"' : *c;
	}
	json_t *tree = json_loads(copy, JSON_DECODE_ANY, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(tree);
	free(copy);
	return tree;
}

#define CONFIG(entries_) "{'subsystems':[{'subsystem':'s','config':[" entries_ "]}]}"
#define APART(entries_, own_)                                                                                          \
	"{'subsystems':[{'subsystem':'s','config':[" entries_ "]}],'varve':[{'subsystem':'s','config':[" own_ "]}]}"

static void check_split(const char *whole, const char *apart)
{
	json_t *a = parse(whole), *b = parse(apart), *known = parse(methods);

	rpc_own_split(a, known);
	CU_ASSERT_TRUE(json_equal(a, b));
	json_decref(a);
	json_decref(b);
	json_decref(known);
}

static void check_merge(const char *apart, const char *whole)
{
	json_t *a = parse(apart), *b = parse(whole);

	CU_ASSERT_PTR_NULL(rpc_own_merge(a));
	CU_ASSERT_TRUE(json_equal(a, b));
	json_decref(a);
	json_decref(b);
}

static void check_both(const char *whole, const char *apart)
{
	check_split(whole, apart);
	check_merge(apart, whole);
}

static void test_own_parameters_stand_apart_with_what_tells_the_entry(void)
{
	check_both(CONFIG("{'method':'make','params':{'name':'a','z':1}}"),
		   CONFIG("{'method':'make','params':{'name':'a','z':1}}"));
	check_both(CONFIG("{'method':'make','params':{'name':'a','z':1}},{'method':'make','params':{'name':'b','z':1,'"
			  "x':2}}"),
		   APART("{'method':'make','params':{'name':'a','z':1}},{'method':'make','params':{'name':'b','z':1}}",
			 "{'method':'make','params':{'name':'b','x':2}}"));
	check_both(CONFIG("{'method':'make','params':{'in':{'nsid':1}}},{'method':'make','params':{'in':{'nsid':2,'y':"
			  "3}}}"),
		   APART("{'method':'make','params':{'in':{'nsid':1}}},{'method':'make','params':{'in':{'nsid':2}}}",
			 "{'method':'make','params':{'in':{'nsid':2,'y':3}}}"));
}

/* Listeners, their groups, and hosts of one subsystem are told by parameters that it has several of. */
static void test_own_parameters_come_to_the_right_entry_of_a_subsystem(void)
{
	check_both(CONFIG("{'method':'make','params':{'nqn':'a','host':'h'}},{'method':'make','params':{'nqn':'a','"
			  "host':'i','x':1}}"),
		   APART("{'method':'make','params':{'nqn':'a','host':'h'}},{'method':'make','params':{'nqn':'a','host'"
			 ":'i'}}",
			 "{'method':'make','params':{'nqn':'a','host':'i','x':1}}"));
	check_both(CONFIG("{'method':'make','params':{'nqn':'a','listen_address':{'p':1}}},{'method':'make','params':{'"
			  "nqn':'a','listen_address':{'p':2},'x':1}}"),
		   APART("{'method':'make','params':{'nqn':'a','listen_address':{'p':1}}},{'method':'make','params':{'"
			 "nqn':'a','listen_address':{'p':2}}}",
			 "{'method':'make','params':{'nqn':'a','listen_address':{'p':2},'x':1}}"));
	check_both(CONFIG("{'method':'make','params':{'nqn':'a','anagrpid':2}},{'method':'make','params':{'nqn':'a','"
			  "anagrpid':3,'x':1}}"),
		   APART("{'method':'make','params':{'nqn':'a','anagrpid':2}},{'method':'make','params':{'nqn':'a','"
			 "anagrpid':3}}",
			 "{'method':'make','params':{'nqn':'a','anagrpid':3,'x':1}}"));
}

static void test_own_methods_come_behind_the_others(void)
{
	check_split(CONFIG("{'method':'ours'},{'method':'make'}"), APART("{'method':'make'}", "{'method':'ours'}"));
	check_merge(APART("{'method':'make'}", "{'method':'ours','params':{'a':1}},{'method':'ours','params':{'b':1}}"),
		    CONFIG("{'method':'make'},{'method':'ours','params':{'a':1}},{'method':'ours','params':{'b':1}}"));
}

static void test_what_creates_keeps_its_place(void)
{
	check_both(
		CONFIG("{'method':'make'},{'method':'o_create','params':{'name':'b'}},{'method':'o_create','params':{"
		       "'name':'c'}},{'method':'make'},{'method':'make'},{'method':'o_create'},{'method':'make'}"),
		APART("{'method':'make'},{'method':'make'},{'method':'make'},{'method':'make'}",
		      "{'method':'o_create','params':{'name':'b'},'place':1},{'method':'o_create','params':{'name':'c"
		      "'},'place':1},{'method':'o_create','place':3}"));
	check_merge(APART("{'method':'make','params':{'on':'b'}},{'method':'make'}",
			  "{'method':'o_create','params':{'name':'b'},'place':2},{'method':'o_create','place':-1},"
			  "{'method':'o_create','place':99},{'method':'o_create','place':'x'}"),
		    CONFIG("{'method':'o_create','params':{'name':'b'}},{'method':'make','params':{'on':'b'}},"
			   "{'method':'make'},{'method':'o_create'},{'method':'o_create'},{'method':'o_create'}"));
}

/* Others may stand on a bdev of a kind that is ours, or have settings for it. */
static void test_what_creates_comes_before_what_uses_it(void)
{
	check_merge(APART("{'method':'make','params':{'name':'a'}},{'method':'set','params':{'in':['b']}}",
			  "{'method':'o_create','params':{'name':'b'}},{'method':'ours','params':{'name':'b'}},"
			  "{'method':'o_create','params':{'name':'c'}},{'method':'o_create','params':{'x':'a'}},"
			  "{'method':'p_create','params':{'name':'a'}}"),
		    CONFIG("{'method':'p_create','params':{'name':'a'}},{'method':'make','params':{'name':'a'}},"
			   "{'method':'o_create','params':{'name':'b'}},{'method':'set','params':{'in':['b']}},"
			   "{'method':'ours','params':{'name':'b'}},{'method':'o_create','params':{'name':'c'}},"
			   "{'method':'o_create','params':{'x':'a'}}"));
}

static void test_two_entries_that_look_alike_get_one_each(void)
{
	check_both(
		CONFIG("{'method':'make','params':{'name':'a','x':1}},{'method':'make','params':{'name':'a','x':1}}"),
		APART("{'method':'make','params':{'name':'a'}},{'method':'make','params':{'name':'a'}}",
		      "{'method':'make','params':{'name':'a','x':1}},{'method':'make','params':{'name':'a','x':1}}"));
}

static void test_what_has_no_entry_is_one_of_its_own(void)
{
	check_merge(APART("[{'method':'make','params':{'name':'a'}}]", "{'method':'make','params':{'name':'a','x':1}}"),
		    CONFIG("[{'method':'make','params':{'name':'a','x':1}}]"));
	check_merge(APART("{'method':'make','params':{'name':'a'}}", "{'method':'make','params':{'name':'b','x':1}},5"),
		    CONFIG("{'method':'make','params':{'name':'a'}},{'method':'make','params':{'name':'b','x':1}},5"));
	check_merge("{'subsystems':[{'subsystem':'s'}],'varve':[{'subsystem':'s','config':[{'method':'m'}]},"
		    "{'subsystem':'t','config':[]}]}",
		    "{'subsystems':[{'subsystem':'s','config':[{'method':'m'}]},{'subsystem':'t','config':[]}]}");
}

static void check_wrong(const char *text)
{
	json_t *config = parse(text);

	CU_ASSERT_PTR_NOT_NULL(rpc_own_merge(config));
	json_decref(config);
}

static void test_a_wrong_form_is_an_error(void)
{
	check_wrong("{'subsystems':[],'varve':{}}");
	check_wrong("{'subsystems':[],'varve':[1]}");
	check_wrong("{'subsystems':[],'varve':[{'subsystem':'s','config':1}]}");
	check_wrong("{'subsystems':[{'subsystem':'s','config':1}],'varve':[{'subsystem':'s','config':[]}]}");
	check_merge("{'subsystems':5,'varve':1}", "{'subsystems':5,'varve':1}");
	check_merge("[]", "[]");
}

static const struct unit_test tests[] = {
	UNIT(test_own_parameters_stand_apart_with_what_tells_the_entry),
	UNIT(test_own_parameters_come_to_the_right_entry_of_a_subsystem),
	UNIT(test_own_methods_come_behind_the_others),
	UNIT(test_what_creates_keeps_its_place),
	UNIT(test_what_creates_comes_before_what_uses_it),
	UNIT(test_two_entries_that_look_alike_get_one_each),
	UNIT(test_what_has_no_entry_is_one_of_its_own),
	UNIT(test_a_wrong_form_is_an_error),
	UNIT_END,
};

UNIT_MAIN("rpc_own", tests, NULL, NULL)
