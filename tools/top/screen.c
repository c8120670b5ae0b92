/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables on a terminal. If the daemon does not run, restarts or does not answer, the screen says so, keeps the last
 * tables, and the daemon is asked again. */
#include <ctype.h>
#include <limits.h>
#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/top/top.h"

#define TIMEOUT_MS   3000
#define MIN_INTERVAL 0.1
#define MAX_INTERVAL 3600
#define FILTER_MAX   64
#define HEAD_LINES   3
#define CTRL_L       12

struct view_state {
	unsigned sort; /* UINT_MAX: none */
	bool reverse;
	size_t first; /* row at the top */
	size_t selected;
	unsigned left; /* columns behind the first that are scrolled away */
};

static struct screen {
	const struct top_options *opt;
	double interval_s;
	struct top_client *client;
	struct top_sample *now, *before; /* before: of the same daemon */
	char why[TOP_WHY_MAX];           /* empty: the last sample could be taken */
	unsigned view;
	struct view_state states[16];
	struct top_history histories[16];
	char detail[TOP_KEY_MAX]; /* the key of the row that is shown alone */
	char filter[FILTER_MAX];
	bool paused, typing, help, is_detail, open_detail, quit;
} scr;

static double top_seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- Looking ---- */

static void top_forget(void)
{
	for (unsigned v = 0; v < top_n_views; v++) {
		top_history_clear(&scr.histories[v]);
	}
}

static void top_remember(void)
{
	struct top_table t;

	for (unsigned v = 0; v < top_n_views; v++) {
		top_table_init(&t, top_views[v]->columns, top_views[v]->n_columns);
		top_views[v]->build(&t, scr.now, scr.before);
		top_history_add(&scr.histories[v], top_views[v], &t);
		top_table_free(&t);
	}
}

static void top_look(void)
{
	struct top_sample *s = NULL;

	if (scr.client == NULL) {
		scr.client = top_client_open(scr.opt->socket, TIMEOUT_MS, scr.why);
	}
	if (scr.client == NULL) {
		return;
	}
	if (top_sample_take(scr.client, &s, scr.why) != 0) {
		top_client_close(scr.client);
		scr.client = NULL;
		return;
	}
	scr.why[0] = '\0';
	top_sample_free(scr.before);
	if (scr.now != NULL && scr.now->pid == s->pid) {
		scr.before = scr.now;
	} else {
		top_sample_free(scr.now);
		scr.before = NULL;
		top_forget();
	}
	scr.now = s;
	top_remember();
}

/* ---- Colours ---- */

enum { COLOR_WRONG = 1, COLOR_FULL, COLOR_HERE }; /* pairs of curses; without colours they look like other text */

#define FULL_PERCENT 90
#define LATE_US      1000000

/* As https://no-color.org has it: NO_COLOR, if it is not empty, means none. */
static void top_start_colors(void)
{
	const char *none = getenv("NO_COLOR");

	if ((none != NULL && none[0] != '\0') || !has_colors() || start_color() != OK) {
		return;
	}
	use_default_colors();
	init_pair(COLOR_WRONG, COLOR_RED, -1);
	init_pair(COLOR_FULL, COLOR_YELLOW, -1);
	init_pair(COLOR_HERE, COLOR_CYAN, -1);
}

/* What is late is red, what is nearly full is yellow. */
static attr_t top_cell_color(const struct top_cell *cell, const struct top_column *c)
{
	if (!cell->known || c->kind == TOP_TEXT) {
		return A_NORMAL;
	}
	if (c->kind == TOP_US && strcmp(c->key, "oldest_us") == 0 && cell->value >= LATE_US) {
		return COLOR_PAIR(COLOR_WRONG) | A_BOLD;
	}
	return c->kind == TOP_PERCENT && cell->value >= FULL_PERCENT ? COLOR_PAIR(COLOR_FULL) | A_BOLD : A_NORMAL;
}

/* ---- Drawing ---- */

static const char view_keys[] = "1234567890v"; /* of top_views, one after the other */

/* The index of the view of that key, or -1. */
static int top_view_of_key(int key)
{
	for (unsigned v = 0; v < top_n_views; v++) {
		if (view_keys[v] == key) {
			return (int)v;
		}
	}
	return -1;
}

/* The width of all tabs if titles but that of the view are cut to so many letters. */
static int top_tabs_width(int letters)
{
	int width = 0;

	for (unsigned v = 0; v < top_n_views; v++) {
		int length = (int)strlen(top_views[v]->title);
		width += 4 + (v == scr.view || length < letters ? length : letters);
	}
	return width;
}

static void top_draw_tabs(void)
{
	int letters = 20;

	while (letters > 1 && top_tabs_width(letters) > COLS) {
		letters--;
	}
	move(1, 0);
	for (unsigned v = 0; v < top_n_views; v++) {
		attrset(v == scr.view ? A_REVERSE | COLOR_PAIR(COLOR_HERE) : A_NORMAL);
		printw(" %c %.*s ", view_keys[v], v == scr.view ? 20 : letters, top_views[v]->title);
	}
	attrset(A_NORMAL);
}

static void top_draw_head(void)
{
	char when[16] = "";
	time_t t = time(NULL);
	struct tm tm;

	if (localtime_r(&t, &tm) != NULL) {
		strftime(when, sizeof(when), "%T", &tm);
	}
	mvprintw(0, 0, "varve-top %s  ", when);
	if (scr.now != NULL) {
		printw("%s  process %lld  %s  ", scr.now->version != NULL ? scr.now->version : "?",
		       (long long)scr.now->pid, scr.now->state != NULL ? scr.now->state : "?");
	}
	printw("every %.1f s", scr.interval_s);
	if (scr.paused) {
		attron(A_REVERSE);
		printw(" PAUSED ");
		attroff(A_REVERSE);
	}
	top_draw_tabs();
	if (scr.why[0] != '\0') {
		attrset(COLOR_PAIR(COLOR_WRONG) | A_BOLD);
		mvprintw(2, 0, "No answer: %.*s; trying again", COLS > 30 ? COLS - 30 : 1, scr.why);
		attrset(A_NORMAL);
	} else if (scr.filter[0] != '\0' && !scr.typing) {
		mvprintw(2, 0, "Only rows with \"%s\"", scr.filter);
	}
	if (scr.typing) {
		mvprintw(2, 0, "Filter: %s_", scr.filter);
	}
}

/* The column that is shown behind column c: the first stays, others are scrolled away. */
static unsigned top_column_behind(const struct view_state *s, unsigned c)
{
	return c == 0 ? 1 + s->left : c + 1;
}

static void top_draw_cell(const char *text, const struct top_column *c, int *x, int y)
{
	int room = COLS - *x;

	if (room <= 0) {
		*x += c->width + 1;
		return;
	}
	int width = c->width < room ? c->width : room;
	mvprintw(y, *x, c->kind == TOP_TEXT ? "%-*.*s" : "%*.*s", width, width, text);
	*x += c->width + 1;
}

static void top_draw_columns(const struct top_table *t, const struct view_state *s)
{
	int x = 0;

	for (unsigned c = 0; c < t->n_columns; c = top_column_behind(s, c)) {
		attrset(c == s->sort ? A_BOLD | A_REVERSE : A_BOLD);
		top_draw_cell(t->columns[c].name, &t->columns[c], &x, HEAD_LINES);
	}
	if (x > COLS + 1) { /* the last column does not fit, or others do not */
		attrset(A_REVERSE);
		mvprintw(HEAD_LINES, COLS - 1, ">");
	}
	attrset(A_NORMAL);
}

/* The selected row is there, and on the screen, which has room for so many. */
static void top_show_selected(const struct top_table *t, struct view_state *s, size_t room)
{
	if (s->selected >= t->n_rows) {
		s->selected = t->n_rows > 0 ? t->n_rows - 1 : 0;
	}
	if (s->first > s->selected) {
		s->first = s->selected;
	} else if (s->selected - s->first >= room) {
		s->first = room > 0 ? s->selected - room + 1 : s->selected;
	}
}

static void top_draw_rows(const struct top_table *t, struct view_state *s)
{
	int lines = LINES - HEAD_LINES - 2;
	size_t room = lines > 0 ? (size_t)lines : 0;
	char text[1024];

	top_show_selected(t, s, room);
	for (size_t i = 0; i < room && s->first + i < t->n_rows; i++) {
		int x = 0;
		attr_t row = s->first + i == s->selected ? A_REVERSE : A_NORMAL;
		for (unsigned c = 0; c < t->n_columns; c = top_column_behind(s, c)) {
			const struct top_cell *cell = &t->rows[s->first + i].cells[c];
			top_cell_format(cell, t->columns[c].kind, text, sizeof(text));
			attrset(row | top_cell_color(cell, &t->columns[c]));
			top_draw_cell(text, &t->columns[c], &x, HEAD_LINES + 1 + (int)i);
		}
	}
	attrset(A_NORMAL);
	/* what matters most comes first: the rest is cut off if there is no room */
	snprintf(text, sizeof(text),
		 "%zu of %zu rows  h help  q quit  1-9 0 v view  Enter details  < > columns  s S sort  / filter  "
		 "p pause  r reverse  + - interval",
		 s->first + room < t->n_rows ? room : t->n_rows - s->first, t->n_rows);
	mvaddnstr(LINES - 1, 0, text, COLS > 1 ? COLS - 1 : 0);
}

static void top_draw_table(void)
{
	const struct top_view *view = top_views[scr.view];
	struct view_state *s = &scr.states[scr.view];
	struct top_table t;

	if (scr.now == NULL) {
		return;
	}
	top_table_init(&t, view->columns, view->n_columns);
	view->build(&t, scr.now, scr.before);
	top_table_filter(&t, scr.is_detail ? "" : scr.filter);
	if (s->sort != UINT_MAX) {
		top_table_sort(&t, s->sort, s->reverse);
	}
	if (scr.open_detail && s->selected < t.n_rows) {
		top_row_key(view, &t.rows[s->selected], scr.detail, sizeof(scr.detail));
		scr.is_detail = true;
	}
	scr.open_detail = false;
	if (scr.is_detail) {
		top_detail_draw(view, &t, scr.detail, &scr.histories[scr.view], HEAD_LINES);
	} else {
		top_draw_columns(&t, s);
		top_draw_rows(&t, s);
	}
	top_table_free(&t);
}

static void top_draw_help(void)
{
	static const char *const lines[] = {
		"1 to 9, 0, v, Tab, left, right   choose what is shown",
		"s, S                       sort by the next column, the one before",
		"r                          sort the other way round",
		"n                          as the daemon has it, not sorted",
		"/                          show only rows with a text; Enter ends it, Escape shows all",
		"p, space                   pause: look at what is there; again to go on",
		"+, -                       look more seldom, more often",
		"up, down, page up, page down, home, end: another row",
		"Enter                      the row by itself, with its numbers at the last looks",
		"<, >                       the columns behind the first, to the left and right",
		"h                          this; any key ends it",
		"q                          quit",
		"",
		"A dash: not known (yet). Rates are those between the last two looks.",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && (int)i + HEAD_LINES < LINES; i++) {
		mvprintw(HEAD_LINES + (int)i, 2, "%s", lines[i]);
	}
}

static void top_draw(void)
{
	erase();
	top_draw_head();
	if (scr.help) {
		top_draw_help();
	} else {
		top_draw_table();
	}
	refresh();
}

/* ---- Keys ---- */

static void top_sort_by(int step)
{
	struct view_state *s = &scr.states[scr.view];
	unsigned n = top_views[scr.view]->n_columns;

	s->sort = s->sort == UINT_MAX ? (step > 0 ? 0 : n - 1) : (s->sort + n + (unsigned)step) % n;
}

static void top_scroll_by(long rows)
{
	size_t *selected = &scr.states[scr.view].selected;

	*selected = rows < 0 && (size_t)-rows > *selected ? 0 : *selected + (size_t)rows;
}

static void top_scroll_columns(int step)
{
	struct view_state *s = &scr.states[scr.view];
	unsigned n = top_views[scr.view]->n_columns;

	if (step > 0 ? s->left + 2 < n : s->left > 0) { /* the first and one more stay */
		s->left += (unsigned)step;
	}
}

static void top_change_interval(double factor)
{
	double s = scr.interval_s * factor;

	scr.interval_s = s < MIN_INTERVAL ? MIN_INTERVAL : s > MAX_INTERVAL ? MAX_INTERVAL : s;
}

static bool top_is_enter(int key)
{
	return key == '\n' || key == '\r' || key == KEY_ENTER;
}

static void top_handle_typing_key(int key)
{
	size_t n = strlen(scr.filter);

	if (top_is_enter(key)) {
		scr.typing = false;
	} else if (key == 27) {
		scr.filter[0] = '\0';
		scr.typing = false;
	} else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n > 0) {
		scr.filter[n - 1] = '\0';
	} else if (key >= ' ' && key < 127 && n + 1 < sizeof(scr.filter)) {
		scr.filter[n] = (char)key;
		scr.filter[n + 1] = '\0';
	}
}

static void top_handle_scroll_key(int key)
{
	int page = LINES - HEAD_LINES - 2;

	switch (key) {
	case '<':
	case '>':
		top_scroll_columns(key == '>' ? 1 : -1);
		break;
	case KEY_UP:
		top_scroll_by(-1);
		break;
	case KEY_DOWN:
		top_scroll_by(1);
		break;
	case KEY_PPAGE:
		top_scroll_by(-page);
		break;
	case KEY_NPAGE:
		top_scroll_by(page);
		break;
	case KEY_HOME:
		scr.states[scr.view].selected = 0;
		break;
	case KEY_END:
		scr.states[scr.view].selected = SIZE_MAX;
		break;
	default:
		break;
	}
}

static void top_handle_command_key(int key)
{
	int view = top_view_of_key(key);

	if (view >= 0) {
		scr.view = (unsigned)view;
		return;
	}
	switch (key) {
	case '\t':
	case KEY_RIGHT:
		scr.view = (scr.view + 1) % top_n_views;
		break;
	case KEY_BTAB:
	case KEY_LEFT:
		scr.view = (scr.view + top_n_views - 1) % top_n_views;
		break;
	case 's':
		top_sort_by(1);
		break;
	case 'S':
		top_sort_by(-1);
		break;
	case 'n':
		scr.states[scr.view].sort = UINT_MAX;
		break;
	case 'r':
		scr.states[scr.view].reverse = !scr.states[scr.view].reverse;
		break;
	case '/':
		scr.typing = true;
		scr.filter[0] = '\0';
		break;
	case 27:
		scr.filter[0] = '\0';
		break;
	case 'p':
	case ' ':
		scr.paused = !scr.paused;
		break;
	case '+':
		top_change_interval(2);
		break;
	case '-':
		top_change_interval(0.5);
		break;
	case 'h':
	case '?':
		scr.help = true;
		break;
	case CTRL_L:
		clearok(stdscr, TRUE);
		break;
	case 'q':
		scr.quit = true;
		break;
	default:
		top_handle_scroll_key(key);
		break;
	}
}

/* Keys that only a row by itself has; all others lead back to the table first. False: the table has the key. */
static bool top_handle_detail_key(int key)
{
	bool is_own = top_is_enter(key) || key == 27;

	if (!is_own && key < 128 && strchr("qp +-", key) != NULL) {
		return false;
	}
	scr.is_detail = false;
	return is_own;
}

static void top_handle_key(int key)
{
	if (scr.help) {
		scr.help = false;
	} else if (scr.is_detail && top_handle_detail_key(key)) {
		return;
	} else if (top_is_enter(key) && !scr.typing) {
		scr.open_detail = true;
	} else if (scr.typing) {
		top_handle_typing_key(key);
	} else {
		top_handle_command_key(key);
	}
}

static volatile sig_atomic_t ended; /* by a signal */

static void top_on_signal(int number)
{
	ended = 1;
}

/* Signals that ask for the end have the effect of q: the terminal is restored, and the exit status is 0. */
static void top_catch_signals(void)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
	struct sigaction old, catch = {.sa_handler = top_on_signal};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
			sigaction(numbers[i], &catch, NULL);
		}
	}
}

/* If the terminal has gone while SIGHUP is ignored, getch() returns at once, again and again. */
static bool top_keyboard_is_gone(void)
{
	struct pollfd p = {.fd = STDIN_FILENO};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* Handles keys until the next sample is due. */
static void top_wait_keys(double until)
{
	while (!scr.quit && !ended) {
		double left = until - top_seconds_now();
		if (left <= 0) {
			return;
		}
		timeout(left < 1 ? (int)(left * 1000) + 1 : 1000);
		int key = getch();
		if (key != ERR) {
			top_handle_key(key);
			top_draw();
		} else if (top_keyboard_is_gone()) {
			ended = 1;
		}
	}
}

int top_screen_run(const struct top_options *opt)
{
	scr = (struct screen){.opt = opt, .interval_s = opt->interval_s};
	scr.view = opt->view >= 0 ? (unsigned)opt->view : 0;
	for (unsigned v = 0; v < top_n_views; v++) {
		scr.states[v] = (struct view_state){.sort = top_views[v]->sort, .reverse = opt->reverse};
	}
	if (opt->sort_given) {
		scr.states[scr.view].sort = opt->sort;
	}
	snprintf(scr.filter, sizeof(scr.filter), "%s", opt->filter != NULL ? opt->filter : "");
	setlocale(LC_ALL, "");
	setenv("ESCDELAY", "25", 0);
	top_catch_signals(); /* before curses installs handlers for signals that have none */
	if (newterm(NULL, stdout, stdin) == NULL) {
		const char *term = getenv("TERM");
		fprintf(stderr,
			"varve-top: TERM is \"%s\": that terminal is not in the terminfo database; --batch or --json "
			"print\n",
			term != NULL ? term : "");
		return TOP_EXIT_USAGE;
	}
	top_start_colors();
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	/* The second sample is taken soon: before it, rates are unknown. */
	for (unsigned n = 0; !scr.quit && !ended && (opt->iterations == 0 || n <= opt->iterations); n++) {
		if (!scr.paused) {
			top_look();
		}
		top_draw();
		top_wait_keys(top_seconds_now() + (n == 0 && scr.interval_s > 0.5 ? 0.5 : scr.interval_s));
	}
	endwin();
	top_forget();
	top_sample_free(scr.now);
	top_sample_free(scr.before);
	top_client_close(scr.client);
	return TOP_EXIT_OK;
}
