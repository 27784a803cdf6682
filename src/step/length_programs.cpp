// SPDX-License-Identifier: Apache-2.0
#include "src/step/length_programs.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vocabpipe {

LengthPrograms::LengthPrograms(std::vector<StepPlan> plans, size_t most)
    : plans_(std::move(plans)), most_(most) {}

ProgramId LengthPrograms::find(Executor& executor, size_t plan,
                               std::span<const int64_t> seq_lengths) {
    const StepPlan& of = plans_[plan];
    const int64_t longest = of.model.seq_length;
    if (std::ranges::all_of(seq_lengths, [&](int64_t length) { return length == longest; })) {
        return plan;
    }
    auto found = std::ranges::find_if(kept_, [&](const Kept& one) {
        return one.plan == plan && std::ranges::equal(one.seq_lengths, seq_lengths);
    });
    const bool loads = found == kept_.end();
    if (loads && kept_.size() < most_) {
        found = kept_.insert(kept_.end(), Kept());
    } else if (loads) {
        found = std::ranges::min_element(kept_, {}, &Kept::last_use);
    }
    const ProgramId id = plans_.size() + static_cast<size_t>(std::distance(kept_.begin(), found));
    if (loads) {
        executor.load(with_lengths(of, seq_lengths).lowered, id);
        found->plan = plan;
        found->seq_lengths.assign(seq_lengths.begin(), seq_lengths.end());
    }
    found->last_use = ++uses_;
    return id;
}

}  // namespace vocabpipe
