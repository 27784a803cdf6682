// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/decompress.hpp"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cstdint>
#include <new>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

using namespace std::string_view_literals;

constexpr size_t kTextBytes = size_t{1} << 20;
constexpr auto kGzip = "\x1f\x8b"sv;
constexpr auto kZstd = "\x28\xb5\x2f\xfd"sv;

/// Frames without text, with which pzstd begins a file.
bool is_skippable_frame(std::string_view head) {
    return head.size() >= 4 && (static_cast<unsigned char>(head[0]) & 0xf0) == 0x50 &&
           head.substr(1, 3) == "\x2a\x4d\x18"sv;
}

/// What both formats share: the block of text, and errors.
class BlockDecompressor : public Decompressor {
protected:
    BlockDecompressor(const std::string& path, const char* format)
        : path_(path), format_(format), block_(kTextBytes, '\0') {}

    void hand_on(size_t bytes, const Take& take) {
        if (bytes == 0) return;
        text_bytes_ += static_cast<int64_t>(bytes);
        take(std::string_view(block_).substr(0, bytes));
    }
    [[noreturn]] void fail(const std::string& what, const char* remedy) const {
        throw InputFileError(path_ + ": the " + format_ + " data " + what + " after " +
                             std::to_string(text_bytes_) + " bytes of text; " + remedy);
    }
    [[noreturn]] void fail_damaged(const char* reason) const {
        fail("is damaged (" + std::string(reason) + ")", "copy the file again");
    }
    [[noreturn]] void fail_cut() const { fail("is cut off", "copy the file again"); }

    std::string& block() { return block_; }

private:
    const std::string& path_;
    const char* format_;
    std::string block_;
    int64_t text_bytes_ = 0;
};

class GzipDecompressor final : public BlockDecompressor {
public:
    explicit GzipDecompressor(const std::string& path) : BlockDecompressor(path, "gzip") {
        constexpr int kGzipFormat = 16 + MAX_WBITS;
        if (::inflateInit2(&stream_, kGzipFormat) != Z_OK) throw std::bad_alloc();
    }
    ~GzipDecompressor() override { ::inflateEnd(&stream_); }
    GzipDecompressor(const GzipDecompressor&) = delete;
    GzipDecompressor& operator=(const GzipDecompressor&) = delete;

    void feed(std::string_view bytes, const Take& take) override {
        // zlib only reads from it.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
        stream_.avail_in = static_cast<uInt>(bytes.size());
        bool full = false;  // more text may wait inside
        while (stream_.avail_in > 0 || full) {
            if (member_ended_ && !begin_member()) return;
            stream_.next_out = reinterpret_cast<Bytef*>(block().data());
            stream_.avail_out = static_cast<uInt>(block().size());
            const int result = ::inflate(&stream_, Z_NO_FLUSH);
            if (result == Z_MEM_ERROR) throw std::bad_alloc();
            hand_on(block().size() - stream_.avail_out, take);
            if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
                fail_damaged(stream_.msg != nullptr ? stream_.msg : "no gzip");
            }
            member_ended_ = result == Z_STREAM_END;
            full = !member_ended_ && stream_.avail_out == 0;
        }
    }
    void end() const override {
        if (!member_ended_) fail_cut();
    }

private:
    /// False if only zeros follow, with which tapes and disks fill their blocks.
    bool begin_member() {
        for (; stream_.avail_in > 0 && *stream_.next_in == 0; ++stream_.next_in) {
            --stream_.avail_in;
        }
        if (stream_.avail_in == 0) return false;
        ::inflateReset(&stream_);
        member_ended_ = false;
        return true;
    }

    z_stream stream_{};
    bool member_ended_ = false;
};

class ZstdDecompressor final : public BlockDecompressor {
public:
    explicit ZstdDecompressor(const std::string& path)
        : BlockDecompressor(path, "zstd"), stream_(::ZSTD_createDCtx()) {
        if (stream_ == nullptr) throw std::bad_alloc();
    }
    ~ZstdDecompressor() override { ::ZSTD_freeDCtx(stream_); }
    ZstdDecompressor(const ZstdDecompressor&) = delete;
    ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;

    void feed(std::string_view bytes, const Take& take) override {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        bool full = false;  // more text may wait inside
        while (in.pos < in.size || full) {
            ZSTD_outBuffer out{block().data(), block().size(), 0};
            left_ = ::ZSTD_decompressStream(stream_, &out, &in);
            hand_on(out.pos, take);
            if (::ZSTD_isError(left_) != 0) fail_zstd();
            full = out.pos == out.size && left_ != 0;
        }
    }
    void end() const override {
        if (left_ != 0) fail_cut();
    }

private:
    [[noreturn]] void fail_zstd() const {
        // 128 MiB is zstd's own limit, and what RFC 8878 asks of decoders is less.
        if (::ZSTD_getErrorCode(left_) == ZSTD_error_frameParameter_windowTooLarge) {
            fail("needs a window of more than 128 MiB",
                 "compress the file again without --long, or with --long=27");
        }
        fail_damaged(::ZSTD_getErrorName(left_));
    }

    ZSTD_DCtx* stream_;
    size_t left_ = 1;  ///< 0: a frame has ended, and all of its text was handed on
};

}  // namespace

std::unique_ptr<Decompressor> find_decompressor(const std::string& path, std::string_view head) {
    if (head.starts_with(kGzip)) return std::make_unique<GzipDecompressor>(path);
    if (head.starts_with(kZstd) || is_skippable_frame(head)) {
        return std::make_unique<ZstdDecompressor>(path);
    }
    return nullptr;
}

}  // namespace vocabpipe
