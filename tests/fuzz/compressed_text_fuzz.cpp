// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: text in blocks of at most 1 MiB, the same however the file was cut into
// blocks, or an InputFileError of one line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "src/train/text/decompress.hpp"
#include "vocabpipe/error.hpp"

namespace {

using namespace vocabpipe;

constexpr size_t kMostText = size_t{1} << 22;  // a small file may be text of any length

struct Enough {};

/// The text of a file that is read in blocks of so many bytes; "error" behind what came before it.
std::string text_of(std::string_view file, size_t block) {
    const std::string path = "/none/file";
    const auto decompressor = find_decompressor(path, file);
    if (decompressor == nullptr) return {};
    std::string text;
    try {
        for (size_t at = 0; at < file.size(); at += block) {
            decompressor->feed(file.substr(at, block), [&](std::string_view part) {
                if (part.size() > size_t{1} << 20) std::abort();
                text += part;
                if (text.size() > kMostText) throw Enough();
            });
        }
        decompressor->end();
    } catch (const InputFileError& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
        return "error";  // how much came before it depends on the blocks
    } catch (const Enough&) {
        text.resize(kMostText);
    }
    return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    if (text_of(file, std::max<size_t>(size, 1)) != text_of(file, 7)) std::abort();
    return 0;
}
