// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/multiple_choice.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

ChoiceAccuracy choice_accuracy(SequenceLosses& losses, const ChoiceSet& set) {
    std::vector<std::pair<const ChoiceSet::Example*, size_t>> sequences;  // example, completion
    for (const ChoiceSet::Example& example : set.examples()) {
        for (size_t c = 0; c < example.completions.size(); ++c) sequences.emplace_back(&example, c);
    }
    std::vector<uint16_t> text;
    const auto fill = [&](int64_t i, Sample& to) {
        const auto& [example, c] = sequences[static_cast<size_t>(i)];
        text.assign(example->context.begin(), example->context.end());
        text.insert(text.end(), example->completions[c].begin(), example->completions[c].end());
        // The last token predicts nothing. What follows it changes nothing, as attention is causal.
        std::copy(text.begin(), text.end() - 1, to.tokens.begin());
        const auto context = static_cast<std::ptrdiff_t>(example->context.size());
        std::copy(text.begin() + context, text.end(), to.labels.begin() + context - 1);
    };
    const std::vector<SequenceLoss> found = losses.of(std::ssize(sequences), fill);
    ChoiceAccuracy result;
    size_t at = 0;
    for (const ChoiceSet::Example& example : set.examples()) {
        const auto own = std::span(found).subspan(at, example.completions.size());
        at += own.size();
        const auto best = std::min_element(own.begin(), own.end(),
                                           [](const SequenceLoss& a, const SequenceLoss& b) {
                                               return a.sum / static_cast<double>(a.tokens) <
                                                      b.sum / static_cast<double>(b.tokens);
                                           });
        ++result.examples;
        if (best - own.begin() == example.label) ++result.right;
    }
    return result;
}

}  // namespace vocabpipe
