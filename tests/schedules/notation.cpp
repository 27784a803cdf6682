// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/notation.hpp"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace vocabpipe::testing {

std::vector<Pass> passes_from(std::string_view text, const Notation& notation) {
    std::vector<Pass> passes;
    size_t at = 0;
    const auto more = [&](int (*kind)(int)) {
        return at < text.size() && kind(static_cast<unsigned char>(text[at])) != 0;
    };
    const auto number = [&] {
        int value = 0;
        while (more(std::isdigit)) value = 10 * value + (text[at++] - '0');
        return value;
    };
    const auto append = [&](Op op, int stage, int microbatch) {
        if (!traits(op).has_stage) stage = 0;
        passes.push_back({op, static_cast<uint16_t>(stage), static_cast<uint32_t>(microbatch)});
    };
    size_t opened = 0;  // where the pair began
    while (at < text.size()) {
        if (text[at] == '(') opened = passes.size();
        if (text[at] == ')') {
            for (size_t i = opened; i + 1 < passes.size(); ++i) passes[i].with_next = true;
        }
        if (std::string_view(" +(;)").find(text[at]) != std::string_view::npos) {
            ++at;
            continue;
        }
        const int stage = more(std::isdigit) ? number() : notation.stage;
        std::string letters;
        while (more(std::isalpha)) letters += text[at++];
        if (letters.empty() || !more(std::isdigit)) {
            throw std::invalid_argument("token at \"" + std::string(text.substr(at)) + "\"");
        }
        const int j = number() - notation.first;
        if (letters == "ST" || (letters == "S" && notation.unit == Unit::joint)) {
            append(Op::S, stage, j);
            append(Op::T, stage, j);
        } else if (letters == "S" && notation.unit == Unit::delayed) {
            if (j > 0) append(Op::T, stage, j - 1);
            if (j < notation.microbatches) append(Op::S, stage, j);
        } else if (letters == "IF" || letters == "E") {
            append(Op::E, stage, j);
        } else if (letters == "IB" || letters == "G") {
            append(Op::G, stage, j);
        } else {
            const std::string_view known = "FBIWREGST";  // in the order of Op
            const size_t op = letters.size() == 1 ? known.find(letters) : known.npos;
            if (op == known.npos) throw std::invalid_argument("pass " + letters);
            append(static_cast<Op>(op), stage, j);
        }
    }
    return passes;
}

std::string text_of(const std::vector<Pass>& passes) {
    std::string text;
    bool in_pair = false;
    for (const Pass& pass : passes) {
        if (!text.empty()) text += in_pair ? ';' : ' ';
        if (pass.with_next && !in_pair) text += '(';
        text += to_string(pass);
        if (in_pair && !pass.with_next) text += ')';
        in_pair = pass.with_next;
    }
    return text;
}

std::vector<Pass> transformer_passes(const std::vector<Pass>& passes) {
    std::vector<Pass> kept;
    for (const Pass& pass : passes) {
        if (pass.op == Op::F || pass.op == Op::B) kept.push_back(pass);
    }
    return kept;
}

int peak_in_flight(const std::vector<Pass>& passes) {
    int now = 0;
    int peak = 0;
    for (const Pass& pass : passes) {
        if (pass.op == Op::F) peak = std::max(peak, ++now);
        if (pass.op == Op::B) --now;
    }
    return peak;
}

Schedule schedule_from(const std::vector<std::string>& lists, int microbatches,
                       const std::vector<int>& rank_of_stage) {
    Schedule schedule;
    schedule.ranks = static_cast<int>(lists.size());
    schedule.stages = static_cast<int>(rank_of_stage.size());
    schedule.microbatches = microbatches;
    schedule.rank_of_stage = rank_of_stage;
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    for (const std::string& list : lists) schedule.passes.push_back(passes_from(list));
    return schedule;
}

}  // namespace vocabpipe::testing
