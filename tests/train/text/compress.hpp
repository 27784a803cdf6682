// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>

namespace vocabpipe::testing {

/// A member of a gzip file.
inline std::string gzip(const std::string& text, int level = 6) {
    z_stream stream{};
    constexpr int kGzipFormat = 16 + MAX_WBITS;
    if (::deflateInit2(&stream, level, Z_DEFLATED, kGzipFormat, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        throw std::runtime_error("deflateInit2 failed");
    }
    std::string result(::deflateBound(&stream, text.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(result.data());
    stream.avail_out = static_cast<uInt>(result.size());
    const int ended = ::deflate(&stream, Z_FINISH);
    result.resize(stream.total_out);
    ::deflateEnd(&stream);
    if (ended != Z_STREAM_END) throw std::runtime_error("deflate failed");
    return result;
}

/// A frame of a zstd file.
inline std::string zstd(const std::string& text, int window_log = 0) {
    ZSTD_CCtx* context = ::ZSTD_createCCtx();
    ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    if (window_log > 0) ::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    std::string result(::ZSTD_compressBound(text.size()), '\0');
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    ZSTD_outBuffer out{result.data(), result.size(), 0};
    // Flushed before its end, so that the frame tells no size and needs its window.
    (void)::ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
    const size_t left = ::ZSTD_compressStream2(context, &out, &in, ZSTD_e_end);
    ::ZSTD_freeCCtx(context);
    if (left != 0) throw std::runtime_error("ZSTD_compressStream2 failed");
    result.resize(out.pos);
    return result;
}

}  // namespace vocabpipe::testing
