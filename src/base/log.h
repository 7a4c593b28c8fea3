/* The program's log: one line per event on standard error.
 *
 * Owns: the level and the sink. Refuses to know: requests. Threads: any; a line is written whole.
 * Lifetime: process. Lines look like `12:34:56.789 I engine: message`. Secrets and prompts are never logged.
 */
#ifndef QR_BASE_LOG_H
#define QR_BASE_LOG_H

#include "base/status.h"

enum qr_log_level { QR_LOG_ERROR, QR_LOG_WARN, QR_LOG_INFO, QR_LOG_DEBUG };

void qr_log_set_level(enum qr_log_level level);
void qr_log(enum qr_log_level level, const char *room, const char *fmt, ...) QR_PRINTF(3, 4);

#define QR_ERROR(room, ...) qr_log(QR_LOG_ERROR, room, __VA_ARGS__)
#define QR_WARN(room, ...) qr_log(QR_LOG_WARN, room, __VA_ARGS__)
#define QR_INFO(room, ...) qr_log(QR_LOG_INFO, room, __VA_ARGS__)
#define QR_DEBUG_LOG(room, ...) qr_log(QR_LOG_DEBUG, room, __VA_ARGS__)

#endif
