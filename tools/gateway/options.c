/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/rpc.h"
#include "tools/gateway/gateway.h"
#include "util/nearest.h"
#include "util/parse.h"

#define DEFAULT_USERS "/etc/varve/gateway.users"

enum {
	O_USERS = 256,
	O_CERT,
	O_KEY,
	O_INSECURE,
	O_CONNECTIONS,
	O_CALLS,
	O_RATE,
	O_CLIENT_TIMEOUT,
	O_CALL_TIMEOUT,
	O_ADD,
	O_ROLE
};

static void gateway_print_usage(FILE *out)
{
	fprintf(out,
		"Usage: varve-gateway -l ADDRESS [OPTION...]\n"
		"       varve-gateway --add-user NAME --role ROLE [--users FILE]\n"
		"\n"
		"Takes JSON-RPC by HTTP POST, from users with passwords, to the socket of a varve.\n"
		"\n"
		"  -l, --listen ADDRESS          192.0.2.1:8009, [2001:db8::1]:8009 or unix:PATH\n"
		"  -s, --socket PATH             where the daemon listens (default: $VARVE_RPC_SOCKET, or\n"
		"                                " RPC_SERVICE_PATH " if it is there, or " RPC_DEFAULT_PATH ")\n"
		"      --users FILE              the users (default " DEFAULT_USERS ")\n"
		"      --cert FILE               the certificate for TLS, and its chain, in PEM\n"
		"      --key FILE                the certificate's key, in PEM\n"
		"      --insecure                HTTP without TLS where other machines can reach it\n"
		"      --max-connections NUMBER  at once (default 128)\n"
		"      --max-calls NUMBER        of the daemon at once (default 16)\n"
		"      --rate NUMBER             requests of a user in a second (default 200; 0: no limit)\n"
		"      --client-timeout SECONDS  for a client to send a request, and to read an answer (default 30)\n"
		"      --call-timeout SECONDS    for the daemon to answer (default 60)\n"
		"      --add-user NAME           add a user, or change one, and end; the password comes from the\n"
		"                                terminal or the standard input\n"
		"      --role ROLE               with --add-user: read, operate or admin\n"
		"  -h, --help                    print this\n"
		"  -v, --version                 print the version\n");
}

static int gateway_option_number(const char *name, uint64_t min, uint64_t max, uint32_t *value)
{
	uint64_t number;

	if (parse_uint64(optarg, min, max, &number) != 0) {
		fprintf(stderr, "varve-gateway: --%s: \"%s\" is not a number from %llu to %llu\n", name, optarg,
			(unsigned long long)min, (unsigned long long)max);
		return GATEWAY_EXIT_USAGE;
	}
	*value = (uint32_t)number;
	return -1;
}

static int gateway_option_role(struct gateway_options *o)
{
	o->role_given = gateway_role_find(optarg, &o->role);
	if (!o->role_given) {
		fprintf(stderr, "varve-gateway: --role: \"%s\" is not read, operate or admin\n", optarg);
		return GATEWAY_EXIT_USAGE;
	}
	return -1;
}

static int gateway_option(int option, struct gateway_options *o)
{
	switch (option) {
	case 'l':
		o->listen = optarg;
		return -1;
	case 's':
		o->socket = optarg;
		return -1;
	case O_USERS:
		o->users = optarg;
		return -1;
	case O_CERT:
		o->cert = optarg;
		return -1;
	case O_KEY:
		o->key = optarg;
		return -1;
	case O_INSECURE:
		o->insecure = true;
		return -1;
	case O_ADD:
		o->add_user = optarg;
		return -1;
	case O_ROLE:
		return gateway_option_role(o);
	case O_CONNECTIONS:
		return gateway_option_number("max-connections", 1, 10000, &o->max_connections);
	case O_CALLS:
		return gateway_option_number("max-calls", 1, 1000, &o->max_calls);
	case O_RATE:
		return gateway_option_number("rate", 0, 1000000, &o->rate);
	case O_CLIENT_TIMEOUT:
		return gateway_option_number("client-timeout", 1, 3600, &o->client_timeout_s);
	case O_CALL_TIMEOUT:
		return gateway_option_number("call-timeout", 1, 86400, &o->call_timeout_s);
	case 'h':
		gateway_print_usage(stdout);
		return 0;
	case 'v':
		printf("varve-gateway v%s\n", VARVE_VERSION);
		return 0;
	default:
		fprintf(stderr, "See varve-gateway --help.\n");
		return GATEWAY_EXIT_USAGE;
	}
}

/* What must be given together. */
static const char *gateway_options_wrong(const struct gateway_options *o)
{
	if (o->add_user != NULL) {
		return o->role_given ? NULL : "--add-user needs --role";
	}
	if (o->role_given) {
		return "--role needs --add-user";
	}
	if (o->listen == NULL) {
		return "--listen is missing";
	}
	return (o->cert != NULL) == (o->key != NULL) ? NULL : "--cert and --key need each other";
}

int gateway_options_parse(int argc, char **argv, struct gateway_options *o)
{
	static const struct option longs[] = {
		{"listen", 1, NULL, 'l'},
		{"socket", 1, NULL, 's'},
		{"users", 1, NULL, O_USERS},
		{"cert", 1, NULL, O_CERT},
		{"key", 1, NULL, O_KEY},
		{"insecure", 0, NULL, O_INSECURE},
		{"max-connections", 1, NULL, O_CONNECTIONS},
		{"max-calls", 1, NULL, O_CALLS},
		{"rate", 1, NULL, O_RATE},
		{"client-timeout", 1, NULL, O_CLIENT_TIMEOUT},
		{"call-timeout", 1, NULL, O_CALL_TIMEOUT},
		{"add-user", 1, NULL, O_ADD},
		{"role", 1, NULL, O_ROLE},
		{"help", 0, NULL, 'h'},
		{"version", 0, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	int option;

	*o = (struct gateway_options){.socket = rpc_client_path(),
				      .users = DEFAULT_USERS,
				      .max_connections = 128,
				      .max_calls = 16,
				      .rate = 200,
				      .client_timeout_s = 30,
				      .call_timeout_s = 60};
	while ((option = getopt_long(argc, argv, "l:s:hv", longs, NULL)) != -1) {
		if (option == '?') {
			nearest_print_option("varve-gateway", argv[optind - 1], longs);
		}
		int status = gateway_option(option, o);
		if (status >= 0) {
			return status;
		}
	}
	const char *wrong = optind < argc ? "there is an argument too many" : gateway_options_wrong(o);
	if (wrong != NULL) {
		fprintf(stderr, "varve-gateway: %s; see --help\n", wrong);
		return GATEWAY_EXIT_USAGE;
	}
	return -1;
}
