// SPDX-License-Identifier: Apache-2.0
// vocabpipe score: records of every token with a saved model.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/split_text.hpp"
#include "src/tool/score/forward_flags.hpp"
#include "src/tool/score/run_forward.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/score/score_tokens.hpp"

namespace vocabpipe::tool {

namespace {

struct ScoreArguments : ForwardArguments<TokenScoreOptions> {
    int64_t top_logprobs = 0;  ///< 0: no list
};

void score_tokens_on(Communicator& world, const TokenScoreOptions& options) {
    const TokenScoreTotals totals = score_tokens(world, options);
    if (world.rank() != 0) return;
    std::string means;
    size_t next = 0;
    for (const TokenRecord record : options.records.columns.list()) {
        if (record == TokenRecord::top_logprobs) continue;  // a list
        char text[64];
        std::snprintf(text, sizeof text, " %.6f", totals.means[next++]);
        means += ", mean " + std::string(to_string(record)) + text;
    }
    std::printf("%s: %s, %s%s\n", options.output.c_str(), counted(totals.samples, "sample").c_str(),
                counted(totals.labels, "label").c_str(), means.c_str());
}

/// Records that are one number of a token. The lists have a flag of their own.
std::vector<std::string_view> numbers_of_a_token() {
    std::vector<std::string_view> names;
    for (const TokenRecord record : kEveryTokenRecord) {
        if (record != TokenRecord::top_logprobs) names.push_back(to_string(record));
    }
    return names;
}

/// "logprob,entropy".
TokenRecords records_from(const std::string& names) {
    const std::vector<std::string_view> known = numbers_of_a_token();
    TokenRecords records;
    for (const std::string_view name : split_text(names)) {
        if (name == to_string(TokenRecord::top_logprobs)) {
            throw UsageError("--records top_logprobs: is a list; use --top-logprobs K");
        }
        if (std::ranges::find(known, name) == known.end()) {
            throw UsageError("--records " + std::string(name) + ": " + must_be_one_of(known, name));
        }
        records = records | TokenRecords{token_record_from(name)};
    }
    return records;
}

std::string text_of(const TokenRecords& records) {
    return joined(records.list(), ",", [](TokenRecord record) { return to_string(record); });
}

}  // namespace

Command score_command() {
    const auto o = std::make_shared<ScoreArguments>();
    TokenRecordOptions& records = o->options.records;
    FlagGroup data = forward_data_flags(o->options);
    data.flags.push_back({.names = "--packing-strategy",
                          .value = &o->options.data.packing_strategy,
                          .help = "How samples are made: wrapped cuts the stream; padded makes a "
                                  "sample of each document",
                          .unit = "NAME",
                          .choices = {"wrapped", "padded"}});
    data.flags.push_back({.names = "--length-buckets",
                          .value = &o->options.data.length_buckets,
                          .help = "With padded: lengths of samples with commas between them, "
                                  "--seq-length among them, or auto; rows of the output stay as "
                                  "long as --seq-length",
                          .unit = "LENGTHS",
                          .unset = "--seq-length"});
    records.columns = {TokenRecord::logprob};
    return comparing_flags(
        {.name = "score",
         .description = "Find numbers of every token with a saved model, for other programs\n"
                        "  vocabpipe score --load RUN --data-path CORPUS --seq-length 1024\n"
                        "      --records logprob,entropy --output records.npy\n"
                        "  mpirun -np 4 vocabpipe score ...",
         .flags = {{.flags = {load_flag(o->options),
                              {.names = "--records",
                               .value =
                                   FlagText{.set =
                                                [&records](const auto& words) {
                                                    records.columns = records_from(words.back());
                                                },
                                            .get = [&records] { return text_of(records.columns); }},
                               .help = "Numbers of a token, separated by commas: " +
                                       joined(numbers_of_a_token()),
                               .unit = "NAMES"},
                              {.names = "--top-logprobs",
                               .value = &o->top_logprobs,
                               .help = "Also the K likeliest tokens of every place, with their "
                                       "log-probabilities",
                               .unit = "K",
                               .range = between(0, TokenRecords::kMostBest)},
                              {.names = "--temperature",
                               .value = &records.temperature,
                               .help = "Divides the logits",
                               .range = above(0)},
                              {.names = "--output",
                               .value = &o->options.output,
                               .help = "File of the records, .npy or .safetensors",
                               .unit = "FILE",
                               .required = true}}},
                   std::move(data),
                   forward_schedule_flags(o->options),
                   launch_flags(o->launch),
                   forward_device_flags(o->device, o->options)},
         .run =
             [o](const GivenFlags&) {
                 TokenRecords& columns = o->options.records.columns;
                 if (o->top_logprobs > 0) columns = columns | TokenRecords::best(o->top_logprobs);
                 run_forward(*o, score_tokens_on);
             }},
        o->launch);
}

}  // namespace vocabpipe::tool
