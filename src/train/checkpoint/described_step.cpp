// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/described_step.hpp"

#include "src/support/crc32c.hpp"
#include "src/support/input_file.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "vocabpipe/error.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

namespace {

/// True also for files of another program; opening the step reports those.
bool is_described(const std::string& folder) {
    const auto text_of = [&](std::string_view name) {
        return InputFile(folder + "/" + std::string(name)).text();
    };
    try {
        const TrainingState state = parse_training_state(text_of(kTrainingFile), folder);
        const auto config = state.files.find(std::string(kConfigFile));
        const std::string text = text_of(kConfigFile);
        return config != state.files.end() &&
               config->second.head == crc32c(std::as_bytes(std::span(text)));
    } catch (const OtherVersionError&) {
        return true;
    } catch (const InputFileError&) {
        return false;
    }
}

}  // namespace

std::string newest_described_step(const std::string& root) {
    const std::vector<SavedStep> steps = complete_steps(root);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        if (is_described(step->folder)) return step->folder;
    }
    return steps.back().folder;
}

}  // namespace vocabpipe
