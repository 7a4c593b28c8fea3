/* A picture of the block pool as lines of a terminal: what `quire top` draws.
 *
 * Owns: the layout and the colours. Refuses to know: terminals, connections.
 * Threads: pure functions. Lifetime: the caller's document and buffer.
 *
 *   quire top  smollm2-135m-instruct at http://127.0.0.1:8000
 *   running 12  waiting 3  |  712 tok/s out, 1480 in  |  prefix hits 83 %  |  preemptions 0
 *   KV 38 % of 65535 blocks (1.5 GB): 412 used, 1200 cached ...; waste 1.4 %
 *
 *   aaaabbb##::::....   one cell stands for one or more blocks, in the order of their ids: of the whole pool where it fits
 *                       at one block a cell, else from the first to the last block that a request holds
 *
 *   request  choice  state ...
 */
#ifndef QR_TOP_FRAME_H
#define QR_TOP_FRAME_H

#include "base/buf.h"
#include "base/json.h"

struct top_view {
    int columns, lines;     // of the terminal; at least 20 and 8
    bool colour;            // 256 colours and block characters; else ASCII
    bool whole;             // every block, also where a cell must stand for many; else the part that requests hold
    const char *url, *model; // printable
    double seconds;         // between the two pages; 0: there is no earlier one
};

// Appends at most view->lines lines, each at most view->columns wide and ending in a newline. now: the page
// of /debug/kv; before: an earlier one, or NULL. QR_EFORMAT: it is not such a page, and nothing is written;
// QR_ENOMEM.
enum qr_status top_draw(const struct top_view *view, qr_json *now, qr_json *before,
                        struct qr_buf *out) QR_MUST_CHECK;

#endif
