/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of varve-trace --html, made into arrays by embed.py: the data, JSON, go between the two. */
#ifndef TOOLS_HTML_PAGE_H
#define TOOLS_HTML_PAGE_H

extern const unsigned char html_before[], html_after[];
extern const unsigned long html_before_size, html_after_size;

#endif
