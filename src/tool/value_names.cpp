// SPDX-License-Identifier: Apache-2.0
#include "src/tool/value_names.hpp"

#include "src/support/names_of.hpp"
#include "src/tool/flag_parser.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/transformer_shape.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

struct Names {
    std::string flag;
    std::vector<std::string> names;
    bool others = false;  ///< files, or several names with commas
};

/// Of "a, b, c".
std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> names;
    std::istringstream text(list);
    for (std::string name; std::getline(text >> std::ws, name, ',');) names.push_back(name);
    return names;
}

std::vector<Names> known() {
    const std::vector<std::string> dialects =
        names_of({CsvDialect::automatic, CsvDialect::current, CsvDialect::old});
    return {
        {"SCHEDULE", schedule_names(), true},
        {"RUN", schedule_names(), true},
        {"--schedules", schedule_names(), true},
        {"--vocab-mode", vocab_mode_names()},
        {"--vocab-modes", vocab_mode_names(), true},
        {"--recompute-granularity", recompute_names()},
        {"--dialect", dialects},
        {"--output-dialect", names_of({CsvDialect::automatic, CsvDialect::current, CsvDialect::old,
                                       CsvDialect::vocabpipe, CsvDialect::lowered})},
        {"--communication-order",
         names_of({CommunicationOrder::lanes, CommunicationOrder::streams,
                   CommunicationOrder::launches, CommunicationOrder::serial})},
        {"--evaluation",
         names_of({Evaluation::automatic, Evaluation::simulation, Evaluation::pass_times})},
        {"--model", split(known_models()), true},
        {"--gpu", split(known_devices()), true},
    };
}

void name_values(CLI::App& app, const std::vector<Names>& all) {
    for (CLI::Option* option : app.get_options()) {
        for (const Names& one : all) {
            if (option->get_name() != one.flag || !choices_of(*option).empty()) continue;
            if (unit_of(*option) == "PATH") continue;  // --model of train_gpt: files alone
            option->check(named(one.names, one.others));
        }
    }
    for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        name_values(*command, all);
    }
}

}  // namespace

void name_values(CLI::App& app) {
    name_values(app, known());
}

}  // namespace vocabpipe::tool
