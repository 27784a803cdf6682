// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/context_cut.hpp"

#include "src/support/names_of.hpp"
#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void ContextCut::check(int64_t seq_length, int ranks) {
    const auto refuse = [ranks](const std::string& why) {
        throw UsageError("--context-parallel-size " + std::to_string(ranks) + ": " + why);
    };
    if (ranks < 1) refuse("must be at least 1");
    if (ranks == 1 || seq_length % (2 * int64_t{ranks}) == 0) return;
    refuse("every rank has two equal segments of a sequence, so --seq-length " +
           std::to_string(seq_length) + " must be a multiple of " + std::to_string(2 * ranks));
}

std::string_view to_string(ContextForm form) {
    return form == ContextForm::allgather ? "allgather" : "a2a";
}

ContextForm context_form_from(std::string_view name) {
    if (const auto form = find_named(name, {ContextForm::allgather, ContextForm::a2a})) {
        return *form;
    }
    if (name == "all_gather") return ContextForm::allgather;
    throw UsageError(
        "--cp-comm-type " + std::string(name) + ": must be allgather or a2a" +
        (name == "p2p" ? "; there are no rings: allgather brings the same keys and values" : ""));
}

ContextCut::ContextCut(int64_t seq_length, int rank, int ranks)
    : seq_length_(seq_length), rank_(rank), ranks_(ranks) {
    check(seq_length, ranks);
}

}  // namespace vocabpipe
