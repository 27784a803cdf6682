// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/bounding.hpp"
#include "src/select/distributed_greedy.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe {

/// How far a selection has come, the same on every rank.
struct SelectionProgress {
    bool bounded = false;
    BoundingReport bounding;
    int64_t bounded_objective = 0;  ///< of all that bounding has left
    std::vector<RoundReport> rounds;
    MessageCount bounding_messages, all_messages;  ///< of all ranks
    uint64_t graph = 0, utility = 0;               ///< fingerprints
};

/// A folder in which a selection keeps what it has come to, so that a run that was ended can go on.
/// Only one run at a time may have it.
class SelectionFolder {
public:
    /// Makes the folder and locks it. UsageError if another run has it. `flags`: all that the
    /// result follows from; those of a run that goes on must be the same. Collective.
    SelectionFolder(Communicator& world, std::string path,
                    std::map<std::string, std::string> flags);
    ~SelectionFolder();
    SelectionFolder(const SelectionFolder&) = delete;
    SelectionFolder& operator=(const SelectionFolder&) = delete;

    /// Fills both and returns true if there is a state; UsageError if it is one of other flags.
    /// Collective.
    bool load(SelectionState& state, SelectionProgress& progress);
    /// Replaces the state, all of it at once. Collective.
    void save(const SelectionState& state, const SelectionProgress& progress);
    /// Removes the folder: nothing is left to be done. Collective.
    void remove();

    [[nodiscard]] const std::string& path() const { return path_; }
    /// False on rank 0 where the file system has no locks: nothing keeps another run away.
    [[nodiscard]] bool locked() const { return locked_; }

private:
    void lock();
    /// Writes whose the lock file is; UsageError if it is somebody else's.
    void mark_lock(const std::string& name);
    void remove_files() noexcept;

    Communicator& world_;
    std::string path_, file_;
    std::map<std::string, std::string> flags_;
    int lock_ = -1;
    bool locked_ = true;
};

}  // namespace vocabpipe
