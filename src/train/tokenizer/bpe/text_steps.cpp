// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/text_steps.hpp"

namespace vocabpipe {

namespace {

Pattern::Memory memory_of(const TextStep& step) {
    if (const auto* const replace = std::get_if<ReplaceMatches>(&step)) {
        return replace->pattern.make_memory();
    }
    if (const auto* const split = std::get_if<Split>(&step)) return split->pattern.make_memory();
    return Pattern::literal("").make_memory();
}

}  // namespace

StepMemory::StepMemory(const TextStep& step) : pattern(memory_of(step)) {}

std::vector<StepMemory> make_memory(std::span<const TextStep> steps) {
    std::vector<StepMemory> result;
    result.reserve(steps.size());
    for (const TextStep& step : steps) result.emplace_back(step);
    return result;
}

TextPart change(const UnicodeForm& step, const TextPart& from, StepMemory& memory) {
    return in_unicode_form(step, from, memory.text);
}

TextPart change(const ReplaceMatches& step, const TextPart& from, StepMemory& memory) {
    Matches matches(step.pattern, from.text, memory.pattern);
    bool changed = false;
    while (const auto found = matches.next()) {
        if (!changed) memory.text.start(from);
        changed = true;
        memory.text.replace(found->begin, found->end, step.text);
    }
    return changed ? memory.text.part() : from;
}

TextPart change(const Prefix& step, const TextPart& from, StepMemory& memory) {
    if (from.text.empty() || (step.at_beginning_only && !from.begins_text) ||
        (step.unless_there && from.text.starts_with(step.text))) {
        return from;
    }
    memory.text.start(from);
    memory.text.replace(0, 0, step.text);
    return memory.text.part();
}

}  // namespace vocabpipe
