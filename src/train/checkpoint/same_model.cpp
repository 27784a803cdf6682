// SPDX-License-Identifier: Apache-2.0
// Compares the model of a checkpoint with the run's, field by field, and names the flag that makes
// them equal.
#include "src/model/config/fields.hpp"
#include "src/model/config_json/lora_keys.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>
#include <variant>

namespace vocabpipe {

namespace {

/// What gives a run the field's value in the file at `path`.
std::string remedy_of(const ModelField& field, const std::string& path) {
    if (field.remedy) return field.remedy();
    const bool takes_value =
        !field.flag.names.empty() && !std::holds_alternative<bool*>(field.flag.value);
    if (takes_value) return "set " + field.flag.name() + " " + field.value_text();
    return "set --model " + std::filesystem::path(path).parent_path().string() +
           ", which reads the whole model from the file";
}

/// In the form of PEFT's configuration.
std::string text_of(const LoraConfig& lora) {
    return print_lora(lora).dump();
}

}  // namespace

void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run) {
    ModelConfig theirs = file;  // the rows need mutable objects
    ModelConfig ours = run;
    const std::vector<ModelField> fields_of_run = model_fields(ours);
    auto next = fields_of_run.begin();
    for (const ModelField& field : model_fields(theirs)) {
        const ModelField& other = *next++;
        if (!field.is_architecture()) continue;
        const std::string wanted = field.value_text();
        const std::string present = other.value_text();
        // Where it has no meaning in one of them, another field says why.
        if (wanted == present || wanted.empty() || present.empty()) continue;
        throw InputFileError(path + ": " + field.name() + " is " + wanted + ", but this run has " +
                             present + "; " + remedy_of(field, path));
    }
    if (file.lora.rank == 0 || text_of(file.lora) == text_of(run.lora))
        return;  // new ones may be added
    throw InputFileError(path + ": its adapters are " + text_of(file.lora) + ", but this run has " +
                         (run.lora.rank == 0 ? "none" : text_of(run.lora)) +
                         "; leave out the --lora flags, or merge the adapters first with "
                         "vocabpipe checkpoint convert");
}

}  // namespace vocabpipe
