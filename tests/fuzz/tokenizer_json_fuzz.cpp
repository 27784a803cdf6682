// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a tokenizer whose ids are in its vocabulary and begin within the text, or an
// InputFileError of one line. A pattern may take too long for a text, which is an Error.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "src/train/tokenizer/bpe/bpe_tokenizer.hpp"
#include "src/train/tokenizer/bpe/tokenizer_json.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    constexpr std::string_view kText = "a\u0301b  the <s>\n\n\xff 12\u4E2D</s>\u2581x";
    try {
        const BpeTokenizer tokenizer(read_tokenizer_json(
            {reinterpret_cast<const char*>(data), size}, "/none/tokenizer.json"));
        std::vector<int32_t> ids, again;
        std::vector<size_t> begins;
        tokenizer.encode(kText, ids);
        tokenizer.encode_with_begins(kText, again, begins);
        if (ids != again || ids.size() != begins.size()) std::abort();
        for (const int32_t id : ids) {
            if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
        }
        for (const size_t begin : begins) {
            if (begin > kText.size()) std::abort();
        }
        (void)tokenizer.decode(ids);
    } catch (const Error& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    return 0;
}
