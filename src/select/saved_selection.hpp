// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/bounding.hpp"
#include "src/select/distributed_greedy.hpp"
#include "src/select/files/tensor_input.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Progress of a selection, the same on every rank.
struct SelectionProgress {
    bool bounded = false;
    BoundingReport bounding;
    int64_t bounded_objective = 0;  ///< of all samples that bounding did not discard
    std::vector<RoundReport> rounds;
    int64_t parts_done = 0;                        ///< of the round after these
    MessageCount bounding_messages, all_messages;  ///< over all ranks
    uint64_t graph = 0, utility = 0;               ///< fingerprints
};

/// A folder with the state of a selection, so that an interrupted run can be resumed. Only one run
/// at a time may use it. Its files lie on rank 0's host; where ranks do not see them, rank 0 writes
/// and reads for them.
class SelectionFolder {
public:
    /// Makes the folder and locks it. UsageError if another run has it. `flags`: all that decide
    /// the result; a resumed run must have the same. `scratch`: where ranks put off what rank 0 is
    /// to write; empty: in the folder, which then every host gets. Collective.
    SelectionFolder(Communicator& world, std::string path, std::map<std::string, std::string> flags,
                    std::string scratch = {});
    ~SelectionFolder();
    SelectionFolder(const SelectionFolder&) = delete;
    SelectionFolder& operator=(const SelectionFolder&) = delete;

    /// Fills both and returns true if there is a state; UsageError if that was saved with other
    /// flags. Collective.
    bool load(SelectionState& state, SelectionProgress& progress);
    /// Replaces the state atomically. Collective.
    void save(const SelectionState& state, const SelectionProgress& progress);
    /// Removes the folder when the selection is complete. Collective.
    void remove();

    [[nodiscard]] const std::string& path() const { return path_; }
    /// False on rank 0 if the file system has no locks: another run may then use it, too.
    [[nodiscard]] bool locked() const { return locked_; }

private:
    /// Called with decisions and marks, and with bounds, of samples from `first` on.
    using Take =
        std::function<void(int64_t first, std::span<const uint8_t>, std::span<const int64_t>)>;
    void read_samples(const TensorInput& input, int64_t first, int64_t last,
                      const Take& take) const;
    void send_samples(const std::optional<TensorInput>& input, const SelectionState& state,
                      const Take& take);
    void lock();
    void leave() noexcept;
    /// Marks the lock file as ours; UsageError if it is a foreign file.
    void mark_lock(const std::string& name);
    void remove_files() noexcept;

    Communicator& world_;
    std::string path_, file_, scratch_;
    bool on_every_host_;
    std::map<std::string, std::string> flags_;
    int lock_ = -1;
    bool locked_ = true;
};

}  // namespace vocabpipe
