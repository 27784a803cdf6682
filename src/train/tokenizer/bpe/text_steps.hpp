// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/pattern.hpp"
#include "src/train/tokenizer/bpe/text_part.hpp"
#include "src/train/tokenizer/bpe/unicode_form.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace vocabpipe {

/// Puts a text in the place of every match.
struct ReplaceMatches {
    Pattern pattern;
    std::string text;
};

/// Puts a text before a part that is not empty.
struct Prefix {
    std::string text;
    bool unless_there = false;       ///< not where the part begins with it already
    bool at_beginning_only = false;  ///< not before parts in the middle of a text
};

/// What becomes of the matches of a Split, as tokenizers names it.
enum class SplitBehavior : uint8_t {
    removed,
    isolated,
    contiguous,  ///< matches that touch are one part
    merged_with_previous,
    merged_with_next
};

/// Cuts a part at the matches of a pattern.
struct Split {
    Pattern pattern;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;  ///< what lies between matches takes their role
};

/// What happens to a text before its words are looked up.
using TextStep = std::variant<UnicodeForm, ReplaceMatches, Prefix, Split>;

/// Memory of one thread for a step.
struct StepMemory {
    explicit StepMemory(const TextStep& step);
    ChangedText text;
    Pattern::Memory pattern;
};
[[nodiscard]] std::vector<StepMemory> make_memory(std::span<const TextStep> steps);

/// A step that gives one part.
[[nodiscard]] TextPart change(const UnicodeForm& step, const TextPart& from, StepMemory& memory);
[[nodiscard]] TextPart change(const ReplaceMatches& step, const TextPart& from, StepMemory& memory);
[[nodiscard]] TextPart change(const Prefix& step, const TextPart& from, StepMemory& memory);

/// Calls `use` for each part that is not empty, from left to right.
template <typename Use>
void split(const Split& step, const TextPart& from, Pattern::Memory& memory, const Use& use) {
    size_t begin = 0;  // of the part that is not used yet
    size_t end = 0;
    bool held_match = false;  // its role
    bool any = false;
    const auto give = [&] {
        const bool kept = step.behavior != SplitBehavior::removed || !held_match;
        if (kept && begin < end) use(from.sub(begin, end));
        begin = end;
    };
    const auto take = [&](size_t to, bool match) {
        const bool joins =
            any &&
            ((step.behavior == SplitBehavior::contiguous && match == held_match) ||
             (step.behavior == SplitBehavior::merged_with_previous && match && !held_match) ||
             (step.behavior == SplitBehavior::merged_with_next && !match && held_match));
        if (!joins) give();
        end = to;
        held_match = match;
        any = true;
    };
    Matches matches(step.pattern, from.text, memory);
    size_t done = 0;
    while (const auto found = matches.next()) {
        if (found->begin > done) take(found->begin, step.invert);
        take(found->end, !step.invert);
        done = found->end;
    }
    if (done < from.text.size()) take(from.text.size(), step.invert);
    give();
}

/// Calls `use` for each part that the steps make of `from`, from left to right.
template <typename Use>
void run_steps(std::span<const TextStep> steps, std::span<StepMemory> memory, const TextPart& from,
               const Use& use) {
    if (steps.empty()) {
        if (!from.text.empty()) use(from);
        return;
    }
    const auto go_on = [&](const TextPart& part) {
        run_steps(steps.subspan(1), memory.subspan(1), part, use);
    };
    std::visit(
        [&](const auto& step) {
            if constexpr (std::is_same_v<std::decay_t<decltype(step)>, Split>) {
                split(step, from, memory[0].pattern, go_on);
            } else {
                go_on(change(step, from, memory[0]));
            }
        },
        steps[0]);
}

}  // namespace vocabpipe
