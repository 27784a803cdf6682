// SPDX-License-Identifier: Apache-2.0
#include "src/tool/data_flags.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

/// One or more words. Given again, the last time counts, as with flags of one word.
void add_words(CLI::App& app, const char* flag, std::vector<std::string>& words,
               const char* description) {
    app.add_option(flag, words, description)->trigger_on_parse();
}

}  // namespace

void add_data_flags(CLI::App& app, DataOptions& o) {
    add_words(app, "--data-path", o.path,
              "Megatron prefix, llm.c shards, or raw tokens with --data-format; or a blend of "
              "several: WEIGHT NAME WEIGHT NAME ...");
    app.add_option("--split", o.split,
                   "Proportions of training, validation and test data in --data-path, such as "
                   "969,30,1 (default: all of it is for training)");
    add_words(app, "--train-data-path", o.train_path,
              "Training data, as --data-path, where validation data has files of its own");
    add_words(app, "--valid-data-path", o.valid_path, "Validation data, as --data-path");
    add_words(app, "--test-data-path", o.test_path, "Test data, as --data-path");
    app.add_option("--data-format", o.format, "auto, raw-u8, raw-u16, raw-u32")
        ->capture_default_str();
    app.add_option("--eod-token-id", o.eod_token_id,
                   "Token that ends a document (default: as the data says)")
        ->check(CLI::NonNegativeNumber);
    app.add_flag("--eod-mask-loss", o.eod_mask_loss,
                 "No loss where the input is the end of a document");
    app.add_flag("--reset-attention-mask", o.reset_attention_mask,
                 "Tokens see their own document only");
}

}  // namespace vocabpipe::tool
