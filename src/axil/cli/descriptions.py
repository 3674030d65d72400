"""The descriptions of `axil --help` and `axil COMMAND --help`; other commands use a docstring."""

ABOUT = """\
Which training rows made a prediction, and by exactly how much.

A prediction of squared-error boosting, a forest or a linear smoother is a weighted sum of the \
training targets.
axil computes the weights from the fitted model and its training data, and verifies them on every \
run."""

EXAMPLES = """\
examples:
  axil demo --save demo                        try it: fits a model and writes it, with its data, \
into demo/
  axil check demo/model.txt                    can this model be explained?

  data="--train demo/train.csv --target progression --index patient"
  axil explain   demo/model.txt $data --query demo/new.csv
  axil similar   demo/model.txt $data --query demo/new.csv --out comparables.csv
  axil group     demo/model.txt $data --query demo/new.csv --by age --cut 40,50,60
  axil what-if   demo/model.txt $data --query demo/new.csv --set 12=80 --set 31=140
  axil without   demo/model.txt $data --query demo/new.csv --rows 12,31
  axil refit     demo/model.txt $data --rows 12,31 --out demo/without.txt
  axil intervals demo/model.txt $data --query demo/new.csv --calibration demo/validation.csv
  axil report    demo/model.txt $data --query demo/new.csv --out pages
  axil find-label-issues     demo/model.txt $data
  axil influence     demo/model.txt $data --validation demo/validation.csv
  axil compare   old.txt new.txt --train-old old.csv --train new.csv --target price --index id \
--query homes.csv

Every command that gives a table takes --out FILE, whose ending chooses the format, --format for \
the printed table, and --quiet.

exit codes: 0 done; 1 the model is refused, or the replay of its fit disagrees; 2 bad usage or \
input;
3 an unexpected error"""

DESCRIPTIONS = {
    "explain": """\
Prints, for each row of the query file, the training rows of largest weight in its prediction, \
with their features.

  weight        how far the prediction would move if that row's target were one larger
  contribution  weight times target; over all training rows, with the intercept, they sum to the \
prediction
  factor        of a model fitted to logarithms: target to the power of its weight; they multiply \
to the prediction

Both hold with the fitted structure fixed: they do not say what a refit would do.""",
    "group": """\
Prints, for each row of the query file, how much of its prediction comes from each group of \
training rows: the sums of their
weights and contributions. Groups are the values of a column of the training file, or bands of a \
column of numbers (--cut).

  weight        how far the prediction would move if every target of the group were one larger
  contribution  of weight times target; over all groups, with the intercept, they sum to the \
prediction""",
    "completion": """\
Prints a script that lets a shell complete commands, options and values. Put the line into the \
start-up file of your shell:

  bash  source <(axil completion bash)     in ~/.bashrc
  zsh   source <(axil completion zsh)      in ~/.zshrc, after compinit
  fish  axil completion fish | source      in ~/.config/fish/config.fish""",
    "demo": """\
Fits LightGBM on scikit-learn's diabetes data (442 patients; the target is disease progression \
after a year) and shows which
earlier patients made the predictions for five new ones.""",
    "check": """\
Says whether a model can be explained, and if not, which setting prevents it. With --train and \
--target the fit is
replayed on the data, and compared with the model leaf by leaf. The exit code is 0 if it can, 1 if \
it cannot.""",
    "compare": """\
Prints, for each row of the query file, the prediction of the old model and of the new one, and \
the causes of the change:
targets that changed, rows that were added, removed or kept, and new splits. Rows are matched by \
the labels of --index.""",
    "write": """\
Writes the weights of all training rows in the prediction of each row of the query file, batch by
batch, or the contributions of an additive model. A Parquet file has a line per prediction, a zarr
folder an array.""",
    "stability": """\
Retrains the model, splits included, and prints how far the predictions of the query file scatter. \
A change by without or
what-if that is smaller than this scatter will not show in a retrained model. MODEL must hold the
estimator with its settings: a .skops file, or a pickle with --trust.""",
    "refit": """\
Writes the model again, as a file of its own library, after some training rows are deleted, others \
are added, or targets are
changed. Splits stay as they are, and all leaf values are those of the new rows; the new model is \
verified on them. It is no
retraining: deleted rows had their part in the choice of the splits.""",
    "find-label-issues": """\
Ranks the training rows by how wrong their labels look to the other rows. It needs no validation \
rows and no
further fit.

  given_label     the target of the training data
  expected_label  the out-of-fold prediction of the row, with the tree structure fixed
  scale           the size of usual residuals there
  studentised     residual over scale
  label_quality   from 0 to 1: the share of right labels that would be as far out
  is_label_issue  marks the first rows: at most a share --fdr of them has a right label

For classes label_quality is the mean of the share of the row's class among the other rows in its
leaves and of its probability without the row. expected_label is the class for which this mean is
largest.""",
    "intervals": """\
Prints, for each row of the query file, an interval that contains its target with the probability \
--confidence-level.

  lower, upper      the ends of the interval
  scale             the size that half of the errors around this prediction stay below
  uncertainty_rank  the share of calibration rows with a smaller expected error; near 1 is unusual

The intervals are calibrated with rows that the model was not fitted on (--calibration), with \
out-of-fold predictions of the
training rows (--out-of-fold), or, without either, with the out-of-bag rows of a forest. Coverage \
holds on average over rows
like the calibration rows, not at every single row.""",
    "predict-set": """\
Prints, for each row of the query file and each class, whether the set that holds the true class \
with the probability
--confidence-level has the class.

  p_value   how usual it is among the calibration rows that their own class is as unlikely
  in_set    whether the class is in the set
  set_size  the number of classes in the set

Calibrated as intervals are: with --calibration, --out-of-fold (the probability of the second of \
two classes), or the
out-of-bag rows of a forest.""",
    "similar": """\
Gives the comparables of each row of the query file as one table: the training rows of largest \
weight in its prediction, with
their features beside those of the row.

  share     of the absolute weight of all training rows, down to this row
  adjusted  with --adjust: the row's target as the model moves it to the query, target + F(query) \
- F(row)""",
    "report": """\
Writes a folder of small pages in plain language, one for each row of the query file, and an index \
with a search: what the
prediction is, which training rows carry it, how each differs, and with --calibration how sure it \
is.

Run again after an interrupt it goes on where it was. A folder of other data or options is \
refused.""",
}
