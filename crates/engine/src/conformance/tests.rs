//! The suite passes a correct engine and catches each mutant.

use super::toy::{Bug, ToySubject};
use super::{Check, Options, check, check_all};

fn options() -> Options {
    Options { runs: 9, fuzz: 300, flood: 500, ..Options::default() }
}

#[test]
fn a_correct_engine_passes() {
    check_all(&ToySubject(Bug::None), &options());
}

#[test]
fn a_correct_engine_passes_with_other_seeds() {
    for seed in 100..110 {
        check_all(&ToySubject(Bug::None), &Options { seed, runs: 2, fuzz: 50, ..options() });
    }
}

/// Each mutant, the check that must catch it and the rule it must be caught by.
macro_rules! caught {
    ($($name:ident: $bug:ident, $check:ident, $rule:literal;)*) => {$(
        #[test]
        #[should_panic(expected = $rule)]
        fn $name() {
            check(&ToySubject(Bug::$bug), &options(), Check::$check);
        }
    )*};
}

caught! {
    a_panic: PanicsWhenShort, ArbitraryBytes, "input never panics:";
    a_panic_at_a_cut_datagram: PanicsWhenShort, EachDatagram, "input never panics:";
    a_resend_at_a_timeout_not_due: ResendsAtEachTimeout, SpuriousTimeout,
        "a spurious timeout changes nothing:";
    a_deadline_that_stays: KeepsPastDeadline, ManyDatagrams,
        "no deadline at or before now after a drain:";
    a_table_that_grows: TakesEveryTransfer, Flood, "memory is bounded:";
    a_queue_that_grows_while_the_path_is_full: QueuesEveryAnswer, Flood, "memory is bounded:";
    a_batch_of_which_one_is_read: ReadsFirstOfBatch, Batches,
        "the batch size does not change the outcome:";
    a_damaged_file: TrustsAnyBytes, EachDatagram, "never a wrong success:";
    a_success_before_it_is_stored: DeliversBeforeStored, SlowStore, "never a wrong success:";
    a_success_although_the_disk_failed: ForgetsFailedEffect, EachEffect, "never a wrong success:";
    a_file_emptied_by_a_late_copy: EmptiesAtFirstByte, EachDatagram, "never a wrong success:";
    a_damaged_file_in_a_mixture: TrustsAnyBytes, Mixtures, "never a wrong success:";
    a_transfer_that_waits_for_ever: NeverAsksAgain, ManyDatagrams,
        "every transfer ends with an indication:";
    a_transfer_stuck_at_one_loss: NeverAsksAgain, EachDatagram,
        "every transfer ends with an indication:";
    a_loss_that_is_not_repaired: NeverRepairs, EachDatagram, "the file arrives:";
    a_hidden_source_of_randomness: DrawsFromElsewhere, SameSeed, "same seed, same bytes:";
    a_timer_without_a_purpose: NeverSleeps, ManyDatagrams, "an idle engine has no deadline:";
    a_batch_of_unequal_datagrams: LiesAboutBatch, Clean,
        "a batch consists of equal datagrams that fit the path:";
    a_send_on_a_full_path: IgnoresBlocked, Interruptions,
        "nothing is sent on a path that is down or blocked:";
    a_drain_without_end: IndicatesForEver, Clean, "a drain ends:";
}

#[test]
#[should_panic(expected = "seed 77, event")]
fn a_failure_reports_how_to_reproduce_it() {
    check(&ToySubject(Bug::NeverRepairs), &Options { seed: 77, ..options() }, Check::EachDatagram);
}
