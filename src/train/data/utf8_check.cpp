// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/utf8_check.hpp"

#include "src/train/data/text_file.hpp"

namespace vocabpipe {

void Utf8Check::refuse(int64_t count) {
    if (count > 0 && first_invalid_ < 0) first_invalid_ = bytes_ - count;
    invalid_ += count;
    have_ = need_ = 0;
}

void Utf8Check::feed(std::string_view block) {
    for (const char c : block) {
        const auto byte = static_cast<unsigned char>(c);
        if (need_ > 0) {
            if (byte >= low_ && byte <= high_) {
                ++bytes_;
                low_ = 0x80;
                high_ = 0xbf;
                if (++have_ == need_) have_ = need_ = 0;
                continue;
            }
            refuse(have_);
        }
        ++bytes_;
        zeros_ += byte == 0 ? 1 : 0;
        if (byte < 0x80) continue;
        // Unicode's table of well-formed sequences: the second byte has the narrower ranges.
        need_ = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
        have_ = 1;
        low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
        high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
        if (byte < 0xc2 || byte > 0xf4) refuse(1);
    }
}

void Utf8Check::end() {
    refuse(have_);
}

TextCheck check_text_files(const std::vector<std::string>& paths) {
    TextCheck all;
    for (const std::string& path : paths) {
        Utf8Check one;
        read_text_file(path, [&](std::string_view block) { one.feed(block); });
        one.end();
        all.bytes += one.bytes();
        all.invalid += one.invalid();
        all.zeros += one.zeros();
        if (all.first.empty() && one.invalid() > 0) {
            all.first = path + " at byte " + std::to_string(one.first_invalid());
        }
    }
    return all;
}

}  // namespace vocabpipe
