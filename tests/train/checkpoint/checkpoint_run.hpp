// SPDX-License-Identifier: Apache-2.0
// Training runs on threads of the test, through train(), that save and load.
#pragma once

#include "src/train/run/trainer.hpp"
#include "tests/train/data/temp_folder.hpp"

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
    /// The losses alone.
    [[nodiscard]] static std::vector<double> losses(const std::vector<std::string>& curve);
    [[nodiscard]] TrainOptions options() const;
    [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

private:
    TempFolder folder_;
};

/// Every file under a folder, by name.
[[nodiscard]] std::map<std::string, std::string> contents(const std::string& folder);

}  // namespace vocabpipe::testing
