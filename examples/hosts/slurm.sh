#!/bin/sh
# Several hosts on one journal in a shared folder: sbatch --array=1-4 slurm.sh
# Every job asks for the next configuration, runs it and tells the result, until 40 are done.
#SBATCH --time=02:00:00
#SBATCH --cpus-per-task=1
# A job that was cancelled holds its configuration; others take it over after an hour.
metakel tune prior.json --journal "$HOME/run.jsonl" --budget "${BUDGET:-40}" --adopt-after 3600 -- \
    python train.py --rate {rate} --depth {depth}
