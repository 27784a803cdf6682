// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/sample_input.hpp"
#include "src/select/files/subset_file.hpp"
#include "src/select/memory_plan.hpp"
#include "src/select/saved_selection.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection.hpp"
#include "vocabpipe/select_samples.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

inline constexpr int64_t kMostPartitions = int64_t{1} << 32;
inline constexpr int64_t kMostRounds = 1'000'000;

/// UsageError unless one of size and fraction is given.
void check_one_size(const SelectSamplesOptions& options);

/// The number of samples to choose out of n. UsageError as check_one_size(), and if n is smaller.
[[nodiscard]] int64_t subset_size_of(const SelectSamplesOptions& options, int64_t n);

/// Flag and value of everything besides the files that decides the result.
[[nodiscard]] std::map<std::string, std::string> deciding_flags(const SelectSamplesOptions& options,
                                                                int64_t size);

/// One rank of a selection, from its inputs to its subset: what select_samples() and `vocabpipe
/// select run` do. Call in this order; all that is not const is collective.
class SelectionRun {
public:
    /// Opens and checks the inputs, and plans memory. All arguments must outlive it.
    SelectionRun(Communicator& world, const SampleGraph& graph, const SampleUtilities& utilities,
                 const SelectSamplesOptions& options);

    [[nodiscard]] int64_t size() const { return size_; }  ///< samples to choose
    [[nodiscard]] const GraphSizes& sizes() const { return sizes_; }
    [[nodiscard]] const MemoryPlan& plan() const { return plan_; }
    [[nodiscard]] const SelectContext& context() const { return context_; }
    /// OutOfMemoryError if the plan does not fit, the same on every rank.
    void check_memory() const;

    /// Opens the folder of the state, if there is one, and allocates.
    void begin();
    /// Null without SelectSamplesOptions::state.
    [[nodiscard]] const SelectionFolder* folder() const { return folder_ ? &*folder_ : nullptr; }
    /// As Selection::run().
    void run(const std::function<void(const char* phase)>& done = {}) { selection_->run(done); }
    [[nodiscard]] const Selection& selection() const { return *selection_; }
    /// The chosen samples that this rank owns, ascending.
    [[nodiscard]] std::vector<int64_t> chosen() const;
    /// Writes the subset to SelectSamplesOptions::output.
    void write();
    /// Removes the saved state.
    void end();

private:
    /// Opens and checks the utilities; sets utility_, size_ and entries_.
    [[nodiscard]] SelectContext open(Communicator& world, const GraphFile& graph,
                                     const SampleUtilities& utilities);
    void plan_for(const GraphSizes& sizes);
    [[nodiscard]] SubsetInfo subset_info() const;

    const SelectSamplesOptions& options_;
    std::unique_ptr<UtilityInput> utility_;
    int64_t size_ = 0, entries_ = 0;  ///< entries: of the rows of all ranks
    SelectContext context_;
    GraphSizes sizes_;
    MemoryPlan plan_;
    std::optional<SelectionFolder> folder_;
    std::optional<Selection> selection_;
};

}  // namespace vocabpipe
