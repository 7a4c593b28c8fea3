/* Assertions. A failed one is a bug in quire: it prints where and what, and aborts.
 *
 * Owns: nothing. Refuses to know: recovery. Threads: any. Lifetime: process.
 * QR_ASSERT stays on in release builds. QR_DASSERT is for hot loops and is on with -DQR_DEBUG only. */
#ifndef QR_BASE_ASSERT_H
#define QR_BASE_ASSERT_H

_Noreturn void qr_assert_failed(const char *expr, const char *file, int line, const char *func);

#define QR_ASSERT(c) ((c) ? (void)0 : qr_assert_failed(#c, __FILE__, __LINE__, __func__))
#ifdef QR_DEBUG
#define QR_DASSERT(c) QR_ASSERT(c)
#else
#define QR_DASSERT(c) ((void)sizeof(c))
#endif

#endif
