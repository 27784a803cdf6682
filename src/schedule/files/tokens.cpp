// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/tokens.hpp"

#include "vocabpipe/error.hpp"

namespace vocabpipe::files {

namespace {

std::string token_of(const Pass& pass, CsvDialect dialect) {
    if (pass.op > Op::T) {
        throw UsageError(to_string(pass) +
                         ": lowering adds the passes of the step; a file must not contain them");
    }
    std::string text = to_string(pass);
    if (dialect != CsvDialect::old) return text;
    const size_t letter = text.find_first_not_of("0123456789");
    if (pass.op == Op::B) text.replace(letter, 1, "BW");
    if (pass.op == Op::I) text[letter] = 'B';
    return text;
}

}  // namespace

std::vector<std::string> tokens_of(const std::vector<Pass>& list, CsvDialect dialect) {
    std::vector<std::string> tokens;
    tokens.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
        if (!list[i].with_next) {
            tokens.push_back(token_of(list[i], dialect));
            continue;
        }
        const std::string name = to_string(list[i]);
        if (dialect == CsvDialect::old) {
            throw UsageError(
                name +
                " is in an overlapped pair, which PyTorch's old dialect does not have; "
                "write the dialect new");
        }
        if (i + 1 == list.size() || list[i + 1].with_next) {
            throw UsageError(
                name +
                " is marked as part of an overlapped pair, but the other part does not follow");
        }
        tokens.push_back("(" + token_of(list[i], dialect) + ";" + token_of(list[i + 1], dialect) +
                         ")OVERLAP_F_B");
        ++i;
    }
    return tokens;
}

}  // namespace vocabpipe::files
