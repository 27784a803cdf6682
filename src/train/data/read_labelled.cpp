// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/read_labelled.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

void check_ids(const TokenSource& source, int64_t first, int64_t vocab_size,
               std::span<const int32_t> tokens) {
    const auto bad =
        std::ranges::find_if(tokens, [&](int32_t id) { return id < 0 || id >= vocab_size; });
    if (bad == tokens.end()) return;
    const TokenPlace place = source.place(first + (bad - tokens.begin()));
    throw InputFileError(
        place.file + ": token " + std::to_string(place.position) + " is " + std::to_string(*bad) +
        ", but --vocab-size " + std::to_string(vocab_size) + " allows only 0 to " +
        std::to_string(vocab_size - 1) +
        "; the data needs a larger vocabulary, or the file was overwritten during the run");
}

}  // namespace

void read_labelled(const TokenSource& source, int64_t first, int64_t vocab_size,
                   const LabelledTokens& to) {
    if (to.tokens.empty()) return;
    // One read, since a file may be opened for each.
    std::vector<int32_t> ids(to.tokens.size() + 1);
    source.read(first, ids);
    if (vocab_size > 0) check_ids(source, first, vocab_size, ids);
    std::copy(ids.begin(), ids.end() - 1, to.tokens.begin());
    std::copy(ids.begin() + 1, ids.end(), to.labels.begin());
    if (!source.info().loss_weights.empty()) source.read_loss_weights(first + 1, to.loss_weights);
}

}  // namespace vocabpipe
