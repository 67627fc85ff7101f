//! Advice in sentences.

use lab::advise::{self, Advice, Basis, CUT, Candidate, Question};
use lab::preset::Sharing;
use transport::contract::Feature;
use transport::quantity::{Size, Span};

use super::span;
use crate::compute::show;

/// The recommendation, what to expect of it, and why.
pub(super) fn paragraph(
    question: &Question,
    advice: &Advice,
    best: &Candidate,
    in_order: bool,
) -> String {
    if advice.runs == 0 {
        let link = "No transport can deliver the file over this link: too little of it arrives.";
        return format!("{link} Nothing was simulated (slowlight {}).", crate::VERSION);
    }
    let mut sentences = Vec::new();
    if !best.delivers() {
        sentences.push(no_delivery(best));
    } else {
        sentences.push(headline(question, best));
        sentences.push(expectation(question, best));
        sentences.extend(success(question, best));
        sentences.extend(ties(advice, best));
        sentences.extend(match advice.thrifty {
            Some(count) => capacity(question, advice, best, count),
            None => {
                let second = advice.ranking.get(advice.tied.max(1));
                second.map(|second| next(question, best, second))
            }
        });
        sentences.extend(over_tcp(advice, best));
        sentences.extend(in_order.then(|| reading(advice, best)));
    }
    sentences.extend(sharing(question, advice, best));
    sentences.push(evidence(question, advice));
    sentences.join(" ")
}

/// Why not even the best transport delivered the file.
fn no_delivery(best: &Candidate) -> String {
    let name = best.title();
    if best.failures.contains_key(CUT) {
        return format!("It is not known whether a transport delivers the file. {name}: {CUT}.");
    }
    let why = best.failures.keys().next().map_or("the file is incomplete", String::as_str);
    format!("No transport delivers the file over this link. {name}: {why}.")
}

fn headline(question: &Question, best: &Candidate) -> String {
    let name = &best.title();
    let sure = format!("{:.0} %", 100.0 * advise::SURE);
    match (question.deadline, best.success) {
        (Some(deadline), Some(0.0)) => {
            format!("No transport meets the deadline of {deadline}. The fastest is {name}.")
        }
        (Some(deadline), Some(success)) if success < advise::SURE => format!(
            "No transport meets the deadline of {deadline} in {sure} of its runs. The best is {name}."
        ),
        (None, Some(success)) if success < advise::SURE => {
            format!("No transport delivers the file in {sure} of its runs. The best is {name}.")
        }
        (Some(deadline), None) => format!(
            "It is not known whether a transport meets the deadline of {deadline}. The first choice \
             is {name}."
        ),
        (None, None) if best.basis == Basis::Unknown => format!(
            "It is not known which transport is best. The first choice, by shorter files, is {name}."
        ),
        (Some(_) | None, _) => format!("Take {name}."),
    }
}

fn expectation(question: &Question, best: &Candidate) -> String {
    let size = question.size;
    let bound = best.bound_s.map_or(String::new(), |bound| {
        format!("; no transport can take less than {} on average", show::duration(bound))
    });
    let interval = best.interval_s.and_then(|(low, high)| span(low, high));
    let expected = match (best.basis, best.mean_s) {
        (Basis::Simulated, Some(mean)) => {
            let spread = match (best.runs, &interval) {
                (1, _) => " in the run that was simulated".to_owned(),
                (_, None) => String::new(),
                (advise::MANY_RUNS.., Some(interval)) => format!(" (90 % of runs: {interval})"),
                (runs, Some(interval)) => format!(" ({runs} runs: {interval})"),
            };
            format!("{size} is delivered after {}{spread}", show::duration(mean))
        }
        (Basis::Estimated, Some(mean)) => {
            let interval = interval.map(|interval| format!(" ({interval})")).unwrap_or_default();
            let mean = show::duration(mean);
            format!("The time for {size} is estimated from shorter files: {mean}{interval}")
        }
        (Basis::Simulated | Basis::Estimated, None) => {
            format!("{size} were not delivered in any run")
        }
        (Basis::Unknown, _) => {
            return format!(
                "{size} take {}, which is the bound of all transports; shorter files say \
                 nothing more where a link changes with time, has several receivers, bursts of \
                 errors or no return.",
                interval.unwrap_or_default()
            );
        }
    };
    format!("{expected}{bound}.")
}

/// Share of runs in which the file is delivered, in time if there is a deadline.
fn success(question: &Question, best: &Candidate) -> Option<String> {
    let success = best.success.filter(|success| *success > 0.0)?;
    let runs = match best.runs {
        1 => "the run that was simulated".to_owned(),
        runs if success < 1.0 => format!("{} of {runs} runs", show::percent(success)),
        runs => format!("all {runs} runs"),
    };
    match (question.deadline, best.basis) {
        (Some(deadline), Basis::Simulated) => {
            Some(format!("It meets the deadline of {deadline} in {runs}."))
        }
        (Some(deadline), Basis::Estimated | Basis::Unknown) => {
            Some(format!("It meets the deadline of {deadline} by that estimate."))
        }
        (None, _) if success < 1.0 => Some(format!("The file is delivered in {runs}.")),
        (None, _) => None,
    }
}

/// Transports that do as well as the best.
fn ties(advice: &Advice, best: &Candidate) -> Option<String> {
    let tied = advice.ranking.get(1..advice.tied)?;
    let names: Vec<_> = tied.iter().map(Candidate::title).collect();
    let (last, before) = names.split_last()?;
    let (all, verb) = match before {
        [] => (last.clone(), "ties"),
        _ => (format!("{} and {last}", before.join(", ")), "tie"),
    };
    Some(format!(
        "{all} {verb} with it: mean times differ by 0.5 % at most, or by 2 % at most and less than \
         the runs vary. {} is recommended as the simplest to run.",
        best.title()
    ))
}

/// Capacity that the best takes, and that of the fastest, if capacity decides.
fn capacity(
    question: &Question,
    advice: &Advice,
    best: &Candidate,
    count: usize,
) -> Option<String> {
    let name = &best.title();
    let spent = show::factor(best.spent?);
    let among = match (question.deadline.is_some(), count) {
        (_, 0 | 1) => return Some(format!("{name} takes {spent} the file's size on the link.")),
        (true, count) => format!("{count} transports that meet the deadline as often"),
        (false, count) => format!("{count} transports within 10 % of the best time"),
    };
    let least =
        format!("{name} takes the least capacity of {among}, {spent} the file's size on the link.");
    let fastest = advice.fastest.as_ref().and_then(|other| {
        let (spent, mean) = (show::factor(other.spent?), show::duration(other.mean_s?));
        Some(format!(" The fastest is {}: {mean} and {spent}.", other.protocol))
    });
    Some(least + &fastest.unwrap_or_default())
}

/// Comparison with the first transport that does not tie.
fn next(question: &Question, best: &Candidate, second: &Candidate) -> String {
    let name = &second.title();
    let about = if second.basis == Basis::Simulated { "" } else { "an estimated " };
    match (best.mean_s, second.mean_s) {
        (Some(first), Some(mean)) if is_as_sure(question, best, second) => {
            let more = more(first, mean);
            let time = show::duration(mean);
            if mean < first && second.basis != Basis::Simulated {
                return format!(
                    "{name} may be faster, with an estimated {time} ({more}): a larger \
                     --budget simulates the full file."
                );
            }
            let why = why(question, best, second);
            // Two daemons may not be worth a small difference.
            let is_simpler = has_nodes(best) && !has_nodes(second);
            let simpler =
                if is_simpler { "; it needs no nodes, one command each side" } else { "" };
            format!("{name} is next, with {about}{time} ({more}){why}{simpler}.")
        }
        (_, Some(mean)) => {
            let share = second.success.map_or_else(|| "an unknown share".to_owned(), show::percent);
            let what = if question.deadline.is_some() { "in time" } else { "delivered" };
            format!(
                "{name} is next: {what} in {share} of the runs, after {}.",
                show::duration(mean)
            )
        }
        (_, None) if second.basis == Basis::Unknown => {
            format!("{name} is next, judged by shorter files only.")
        }
        (_, None) => format!("No other transport delivers it: {name} does not in any run."),
    }
}

/// Whether the hosts run bundle nodes.
fn has_nodes(candidate: &Candidate) -> bool {
    candidate.protocol.kind.has(Feature::Nodes)
}

/// Whether nothing shows that the second transport delivers the file less often than the first. An
/// estimate without a deadline supposes delivery.
fn is_as_sure(question: &Question, best: &Candidate, second: &Candidate) -> bool {
    let is_estimate = second.basis == Basis::Estimated && question.deadline.is_none();
    second.success >= best.success || second.success.is_none() && is_estimate
}

/// The cause of a candidate's delay, where its measures name one.
fn why(question: &Question, best: &Candidate, other: &Candidate) -> String {
    let ready = other.ready_s.unwrap_or(0.0) - best.ready_s.unwrap_or(0.0);
    let behind = other.mean_s.unwrap_or(0.0) - best.mean_s.unwrap_or(0.0);
    let packets = other.packets_ratio.zip(best.packets_ratio).map(|(other, best)| other / best);
    if ready > 0.0 && ready >= 0.5 * behind {
        return format!(
            "; it needs {} before the first byte of the file can be sent",
            show::duration(ready)
        );
    }
    match packets {
        // Without a return link, packets after delivery count, too.
        Some(ratio) if ratio > 1.05 && question.has_return => {
            format!("; its sender sends {:.0} % more packets", 100.0 * (ratio - 1.0))
        }
        _ => String::new(),
    }
}

/// Times by the transport that most people have.
fn over_tcp(advice: &Advice, best: &Candidate) -> Option<String> {
    if advise::is_controlled(&best.protocol) {
        return None;
    }
    let shown = advice.tied.max(1) + 1;
    let title = |candidate: &Candidate| candidate.protocol.kind.top().familiar;
    let mut others = advice.ranking.iter().skip(shown);
    let (familiar, title) = others.find_map(|other| Some((other, title(other)?)))?;
    let about = if familiar.basis == Basis::Simulated { "" } else { "an estimated " };
    Some(match (familiar.mean_s, best.mean_s) {
        (Some(mean), Some(best)) => format!(
            "{title} ({}) takes {about}{} ({}).",
            familiar.protocol,
            show::duration(mean),
            more(best, mean)
        ),
        (None, _) if familiar.basis == Basis::Simulated => format!("{title} does not deliver it."),
        (None | Some(_), _) => return None,
    })
}

/// When the receiver can read the bytes in order.
fn reading(advice: &Advice, best: &Candidate) -> String {
    let name = &best.protocol;
    if advise::streams(&best.protocol) {
        return format!("{name} can deliver the bytes in order while they arrive.");
    }
    let whole = format!("With {name} the receiver can read the file once it is complete.");
    let stream = advice.ranking.iter().find(|other| advise::streams(&other.protocol));
    match stream.and_then(|other| Some((&other.protocol, other.mean_s?))) {
        Some((other, mean)) => format!(
            "{whole} The fastest that can deliver bytes in order while they arrive is {other}, \
             whose last byte comes after {}.",
            show::duration(mean)
        ),
        None => whole,
    }
}

/// Assumption about other users of the path.
fn sharing(question: &Question, advice: &Advice, best: &Candidate) -> Option<String> {
    if advice.controlled {
        let source = match question.sharing.or(question.link.sharing) {
            Some(Sharing::Shared) => "The path is shared",
            Some(Sharing::Dedicated) | None => {
                "The link has no `sharing` setting, so it counts as shared"
            }
        };
        let other = advice.dedicated.as_ref().and_then(|other| {
            let about = if other.basis == Basis::Simulated { "" } else { "an estimated " };
            let time = other.mean_s.filter(|_| other.delivers())?;
            Some(format!(
                " If its rate is yours alone (--dedicated), {} takes {about}{}.",
                other.protocol,
                show::duration(time)
            ))
        });
        let other = other.unwrap_or_default();
        return Some(format!(
            "{source}: only transports with congestion control are ranked.{other}"
        ));
    }
    if advise::is_controlled(&best.protocol) {
        return None;
    }
    let shared = question.sharing() == Sharing::Shared;
    let is_given = question.sharing.or(question.link.sharing).is_some();
    let far = if shared || is_given {
        String::new()
    } else {
        format!(
            " Light takes more than {} to the receiver, so the path counts as dedicated; --shared \
             ranks transports for a shared one.",
            Span(advise::SHARED_DELAY_MAX)
        )
    };
    let why = if shared { "; without a return link no transport has any" } else { "" };
    Some(format!(
        "{} has no congestion control{why}: send it at a rate reserved for it.{far}",
        best.title()
    ))
}

/// Basis of the numbers: worlds, seeds, version.
fn evidence(question: &Question, advice: &Advice) -> String {
    let all = advice.ranking.len();
    let whole = advice.ranking.iter().filter(|c| c.basis == Basis::Simulated).count();
    let by =
        format!("{} runs, seeds from {}, slowlight {}", advice.runs, question.seed, crate::VERSION);
    let cost = cost(question, advice).unwrap_or_default();
    match whole {
        0 => format!("Only shorter files were simulated ({by}).{cost}"),
        whole if whole == all => format!("All runs simulated the full file size ({by})."),
        whole => format!(
            "{whole} of {all} transports were simulated with the full file size, the others (~) with \
             shorter files ({by}).{cost}"
        ),
    }
}

/// Cost of simulating the whole file, if the first was not.
fn cost(question: &Question, advice: &Advice) -> Option<String> {
    let run_s = advice.run_s?;
    let copies = question.size.bytes().saturating_mul(1 + u64::from(question.receivers));
    Some(if copies > advise::MEMORY_MAX {
        let most = Size(advise::MEMORY_MAX);
        format!(
            " The file and its copies have more than {most}, the limit for simulations of the full size."
        )
    } else {
        let time = show::duration(run_s);
        format!(
            " A run with the full file takes about {time} of processor time; give a larger --budget."
        )
    })
}

/// A difference of times, as a share of the shorter one.
fn more(first: f64, mean: f64) -> String {
    let ratio = mean / first;
    if (ratio - 1.0).abs() < 5e-4 {
        "the same time".to_owned()
    } else if ratio < 2.0 {
        format!("{:+.1} %", 100.0 * (ratio - 1.0))
    } else {
        format!("{ratio:.1} times as long")
    }
}
