//! Chirp's users: number of followers and posting rate of each (Scatter §7.2.1). Synthetic: no trace is available.

use crate::rng::Rng;

/// The exponent of the distribution of followers: the share of users with more than `x` followers falls as `x^-1.28`.
const EXPONENT: f64 = 1.28;
/// A user's posting rate rises with the root of the number of followers.
const RATE_EXPONENT: f64 = 0.5;

/// Rates at which the users, or keys, are written.
#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    /// Sums of the rates up to each user.
    sums: Vec<f64>,
}

impl Popularity {
    /// Returns equal rates for `users` users.
    pub(crate) fn even(users: usize) -> Popularity {
        Popularity { sums: (1..=users).map(|user| user as f64).collect() }
    }

    /// Returns the posting rates of Chirp's users.
    pub(crate) fn chirp(users: usize) -> Popularity {
        let rates = (0..users).map(|rank| followers(rank, users).powf(RATE_EXPONENT));
        let sum = |sum: &mut f64, rate: f64| {
            *sum += rate;
            Some(*sum)
        };
        Popularity { sums: rates.scan(0.0, sum).collect() }
    }

    /// Draws a user.
    pub(crate) fn draw(&self, rng: &mut Rng) -> usize {
        let all = self.sums.last().copied().unwrap_or(0.0);
        let drawn = rng.fraction() * all;
        self.sums.partition_point(|sum| *sum <= drawn).min(self.sums.len().saturating_sub(1))
    }
}

/// Returns the followers of the user of this rank, from 0, of `users` users: the quantile of the distribution, from 1 on.
fn followers(rank: usize, users: usize) -> f64 {
    (users as f64 / (rank as f64 + 0.5)).powf(1.0 / EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_users_post_more_often() {
        let (users, mut rng) = (1_000, Rng::new(1, "chirp"));
        let (chirp, even) = (Popularity::chirp(users), Popularity::even(users));
        let mut counts = [vec![0u32; users], vec![0u32; users]];
        for _ in 0..200_000 {
            counts[0][chirp.draw(&mut rng)] += 1;
            counts[1][even.draw(&mut rng)] += 1;
        }
        assert!(counts[1].iter().all(|count| (120..280).contains(count)), "even");
        let [first, tenth, last] = [0, 9, 999].map(|rank| f64::from(counts[0][rank]));
        // Followers fall with the rank as its power of -1/1.28, and rates with half of that.
        assert!((first / tenth - 19f64.powf(0.5 / 1.28)).abs() < 0.4, "{first} and {tenth}");
        assert!(last > 50.0, "each user posts: {last}");
    }
}
