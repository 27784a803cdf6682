// SPDX-License-Identifier: Apache-2.0
// Training runs on threads of the test, through train(), that save and load.
#pragma once

#include "src/train/run/trainer.hpp"
#include "tests/train/data/temp_folder.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A folder with data and the options of a small run over it: 4 layers, 6 microbatches, 6 steps.
class CheckpointRun {
public:
    CheckpointRun();

    /// Loss, gradient norm and learning rate of every step in its metrics file, a new one if the
    /// options name none, as text: equal text, equal bits.
    [[nodiscard]] std::vector<std::string> run(int ranks, TrainOptions options) const;
    /// Steps 1 to 6, of which step 3 is left in the folder of this name, which is made anew.
    [[nodiscard]] std::vector<std::string> run_and_leave_step_3(int ranks, TrainOptions options,
                                                                const std::string& folder) const;
    /// The steps after the newest in this folder.
    [[nodiscard]] std::vector<std::string> resume(int ranks, TrainOptions options,
                                                  const std::string& folder) const;
    /// The losses alone.
    [[nodiscard]] static std::vector<double> losses(const std::vector<std::string>& curve);
    [[nodiscard]] TrainOptions options() const;
    [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

private:
    TempFolder folder_;
};

/// The last steps of what CheckpointRun::run() returns.
[[nodiscard]] inline std::vector<std::string> last(const std::vector<std::string>& curve,
                                                   size_t count) {
    return {curve.end() - static_cast<std::ptrdiff_t>(count), curve.end()};
}

/// Every file under a folder, by name.
[[nodiscard]] std::map<std::string, std::string> contents(const std::string& folder);

}  // namespace vocabpipe::testing
