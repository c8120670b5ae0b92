/* SPDX-License-Identifier: BSD-3-Clause */
/* PCI devices, in a folder made to look like /sys/bus/pci/devices. */
#include "unittest/unit.h"
#include "env_dpdk/env_internal.h"
#include "env_dpdk/pci_internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/varve-unit-pci-XXXXXX";

static void write_file(const char *bdf, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s/%s", folder, bdf, name);
	FILE *f = fopen(path, "w");
	if (f == NULL) {
		abort();
	}
	fputs(text, f);
	fclose(f);
}

static void make_device(const char *bdf, const char *class, const char *vendor, const char *device, const char *node)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, bdf);
	mkdir(path, 0700);
	write_file(bdf, "class", class);
	write_file(bdf, "vendor", vendor);
	write_file(bdf, "device", device);
	write_file(bdf, "numa_node", node);
	write_file(bdf, "config", "");
}

static int setup(void)
{
	char path[256];

	if (mkdtemp(folder) == NULL) {
		return -1;
	}
	make_device("0000:5e:00.0", "0x010802\n", "0x8086\n", "0x0a54\n", "1\n");
	make_device("0000:3b:00.0", "0x010802\n", "0x144d\n", "0xa808\n", "-1\n");
	make_device("10000:01:00.1", "0x020000\n", "0x15b3\n", "0x1017\n", "0\n");
	snprintf(path, sizeof(path), "%s/0000:5e:00.0/driver", folder);
	if (symlink("../../../bus/pci/drivers/nvme", path) != 0) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/0000:5e:00.0/iommu_group", folder);
	if (symlink("../../../kernel/iommu_groups/27", path) != 0) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/not a device", folder);
	mkdir(path, 0700);
	env_pci_set_folder(folder);
	return 0;
}

static int teardown(void)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	env_pci_start(&(struct env_opts){0});
	return system(command);
}

static void test_addresses_are_understood(void)
{
	char bdf[16];

	CU_ASSERT_EQUAL(env_pci_parse("5e:00.0", bdf), 0);
	CU_ASSERT_STRING_EQUAL(bdf, "0000:5e:00.0");
	CU_ASSERT_EQUAL(env_pci_parse("0000:5E:1f.7", bdf), 0);
	CU_ASSERT_STRING_EQUAL(bdf, "0000:5e:1f.7");
	CU_ASSERT_EQUAL(env_pci_parse("10000:01:00.0", bdf), 0);
	CU_ASSERT_STRING_EQUAL(bdf, "10000:01:00.0");
}

static void test_wrong_addresses_are_refused(void)
{
	static const char *const wrong[] = {"",
					    "5e",
					    "5e:00",
					    "5e:00.8",
					    "5e:20.0",
					    "5e:00.0x",
					    "0000:5e:00",
					    "zz:00.0",
					    "0000:5e:00.0 ",
					    "../5e:00.0",
					    "5e:00.",
					    ":::",
					    "123456789:00:00.0",
					    "fffffffff:ff:ff.f"};
	char bdf[16];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT_EQUAL(env_pci_parse(wrong[i], bdf), -EINVAL);
	}
}

static void test_devices_are_listed_with_what_they_are(void)
{
	struct env_pci_device *d;

	env_pci_start(&(struct env_opts){0});
	CU_ASSERT_EQUAL_FATAL(env_pci_list(&d), 3);
	CU_ASSERT_STRING_EQUAL(d[0].bdf, "0000:3b:00.0");
	CU_ASSERT_EQUAL(d[0].numa_node, -1);
	CU_ASSERT_STRING_EQUAL(d[0].driver, "");
	CU_ASSERT_EQUAL(d[0].iommu_group, -1);
	CU_ASSERT_STRING_EQUAL(d[1].bdf, "0000:5e:00.0");
	CU_ASSERT_EQUAL(d[1].class_code, ENV_PCI_CLASS_NVME);
	CU_ASSERT_EQUAL(d[1].vendor, 0x8086);
	CU_ASSERT_EQUAL(d[1].device, 0x0a54);
	CU_ASSERT_EQUAL(d[1].numa_node, 1);
	CU_ASSERT_STRING_EQUAL(d[1].driver, "nvme");
	CU_ASSERT_EQUAL(d[1].iommu_group, 27);
	CU_ASSERT_STRING_EQUAL(d[2].bdf, "10000:01:00.1");
	free(d);
}

static void test_the_configuration_space_is_read_as_far_as_it_goes(void)
{
	uint8_t config[ENV_PCI_CONFIG_BYTES];
	char text[400];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CU_ASSERT_EQUAL(env_pci_read_config("3b:00.0", config), 0);
	write_file("0000:3b:00.0", "config", "M\x14\x08\xa8");
	CU_ASSERT_EQUAL(env_pci_read_config("3b:00.0", config), 4);
	CU_ASSERT(config[0] == 0x4d && config[1] == 0x14 && config[3] == 0xa8);
	write_file("0000:3b:00.0", "config", text);
	CU_ASSERT_EQUAL(env_pci_read_config("0000:3b:00.0", config), ENV_PCI_CONFIG_BYTES);
	CU_ASSERT_EQUAL(config[ENV_PCI_CONFIG_BYTES - 1], 'x');
	CU_ASSERT_EQUAL(env_pci_read_config("99:00.0", config), -ENOENT);
	CU_ASSERT_EQUAL(env_pci_read_config("nonsense", config), -ENODEV);
	write_file("0000:3b:00.0", "config", "");
}

static void test_allow_and_block_lists_hold(void)
{
	const char *const list[] = {"5e:00.0", NULL};
	struct env_pci_device *d;
	int holder;

	env_pci_start(&(struct env_opts){.pci_allowed = list});
	CU_ASSERT_EQUAL_FATAL(env_pci_list(&d), 1);
	CU_ASSERT_STRING_EQUAL(d[0].bdf, "0000:5e:00.0");
	free(d);
	CU_ASSERT_EQUAL(env_pci_claim("3b:00.0", &holder), -EPERM);
	env_pci_start(&(struct env_opts){.pci_blocked = list});
	CU_ASSERT_EQUAL_FATAL(env_pci_list(&d), 2);
	CU_ASSERT_STRING_EQUAL(d[0].bdf, "0000:3b:00.0");
	free(d);
	CU_ASSERT_EQUAL(env_pci_claim("5e:00.0", &holder), -EPERM);
	env_pci_start(&(struct env_opts){.no_pci = true});
	CU_ASSERT_EQUAL(env_pci_list(&d), 0);
	CU_ASSERT_PTR_NULL(d);
	CU_ASSERT_EQUAL(env_pci_claim("5e:00.0", &holder), -EPERM);
	env_pci_start(&(struct env_opts){0});
}

static void test_claimed_device_is_refused_to_others_until_its_holder_dies(void)
{
	int ready[2], holder;
	char byte;

	env_pci_start(&(struct env_opts){0});
	CU_ASSERT_EQUAL(env_pci_claim("99:00.0", &holder), -ENODEV);
	CU_ASSERT_EQUAL(env_pci_claim("nonsense", &holder), -ENODEV);
	CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		byte = env_pci_claim("5e:00.0", &holder) >= 0;
		if (write(ready[1], &byte, 1) == 1) {
			pause();
		}
		_exit(1);
	}
	CU_ASSERT_EQUAL(read(ready[0], &byte, 1), 1);
	CU_ASSERT_EQUAL(byte, 1);
	CU_ASSERT_EQUAL(env_pci_claim("5e:00.0", &holder), -EBUSY);
	CU_ASSERT(holder == pid || holder == 0);
	int other = env_pci_claim("3b:00.0", &holder);
	CU_ASSERT(other >= 0);
	env_pci_release(other);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	int claim = env_pci_claim("0000:5e:00.0", &holder);
	CU_ASSERT(claim >= 0);
	CU_ASSERT_EQUAL(env_pci_claim("5e:00.0", &holder), -EBUSY);
	env_pci_release(claim);
	claim = env_pci_claim("5e:00.0", &holder);
	CU_ASSERT(claim >= 0);
	env_pci_release(claim);
	close(ready[0]);
	close(ready[1]);
}

static const struct unit_test tests[] = {
	UNIT(test_addresses_are_understood),
	UNIT(test_wrong_addresses_are_refused),
	UNIT(test_devices_are_listed_with_what_they_are),
	UNIT(test_the_configuration_space_is_read_as_far_as_it_goes),
	UNIT(test_allow_and_block_lists_hold),
	UNIT(test_claimed_device_is_refused_to_others_until_its_holder_dies),
	UNIT_END,
};

UNIT_MAIN("pci", tests, setup, teardown)
